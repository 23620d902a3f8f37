"""Marks that keep Dynamo away from our functions, on any torch."""

from __future__ import annotations

import dataclasses
import types
from types import SimpleNamespace
from typing import Any, NamedTuple

import pytest
import torch

from compilediag_harness.base import journal
from compilediag_harness.steps import steps
from compilediag_harness.torch_internals import dynamo_skip, torch_names

Marks = dict[types.CodeType, tuple[str, str]]


def torch_with(marked: Marks) -> Any:
    """What `torch._C._dynamo.eval_frame` offers."""
    eval_frame = SimpleNamespace(
        _FrameAction=SimpleNamespace(SKIP="skip", DEFAULT="default"),
        _FrameExecStrategy=lambda own, callees: (own, callees),
        set_code_exec_strategy=marked.__setitem__,
    )
    return SimpleNamespace(_C=SimpleNamespace(_dynamo=SimpleNamespace(eval_frame=eval_frame)))


@pytest.fixture
def anew(monkeypatch: pytest.MonkeyPatch) -> None:
    """No module was marked so far."""
    monkeypatch.setattr(dynamo_skip, "_skipped_modules", set[str]())


@pytest.mark.usefixtures("anew")
def test_functions_are_marked_with_what_they_call() -> None:
    """What a collector calls is ours as well; what the program's code below us calls is not, and
    neither are the steps of a program that `drive` calls."""
    marked: Marks = {}
    assert dynamo_skip.keep_out_of_dynamo(torch_with(marked))
    assert marked[journal.Journal.append.__code__] == ("skip", "skip")
    assert marked[steps.drive.__code__] == ("skip", "default")
    wrapper = next(
        code
        for code in dynamo_skip.iterate_codes(torch_names)
        if code.co_name == "call_with_listeners" and "original" in code.co_freevars
    )
    assert marked[wrapper] == ("skip", "default")


@pytest.mark.usefixtures("anew")
def test_a_torch_without_the_mark_is_told() -> None:
    """Nothing raises: the functions then may be compiled, and do nothing while they are traced."""
    assert not dynamo_skip.keep_out_of_dynamo(SimpleNamespace())


@pytest.mark.usefixtures("anew")
def test_this_torch_has_the_mark() -> None:
    """The contract with torch that the module rests on."""
    assert dynamo_skip.keep_out_of_dynamo(torch)


def test_all_code_of_a_module_is_found_and_none_of_others() -> None:
    """Of a named tuple and a data class, the functions made for it, and not those that it shares
    with the classes of the program."""

    def outer() -> Any:
        return lambda values: [value + 1 for value in values]

    class Pair(NamedTuple):
        left: int

    @dataclasses.dataclass
    class Point:
        x: int

        @property
        def double(self) -> int:
            return 2 * self.x

        @staticmethod
        def make() -> Point:
            return Point(1)

    module: Any = types.ModuleType(__name__)
    module.__file__ = __file__
    vars(module).update(outer=outer, Pair=Pair, Point=Point, pytest=pytest)
    found = list(dynamo_skip.iterate_codes(module))
    names = [code.co_name for code in found]
    assert {"outer", "<lambda>", "double", "make", "__init__"} <= set(names)
    assert {code.co_filename for code in found} <= {__file__, "<string>"}
    assert not any(name in names for name in ("_replace", "_make", "raises"))


def test_nothing_is_being_compiled_before_torch_is_there(monkeypatch: pytest.MonkeyPatch) -> None:
    """The question can be asked in a program without torch, and is torch's own with it."""
    monkeypatch.setattr(dynamo_skip, "is_compiling", dynamo_skip._return_false)
    assert not dynamo_skip.is_compiling()
    monkeypatch.setattr(dynamo_skip, "is_traced", dynamo_skip._return_false)
    compiler = SimpleNamespace(is_compiling=lambda: True, is_dynamo_compiling=lambda: True)
    dynamo_skip.bind(SimpleNamespace(compiler=compiler))
    assert dynamo_skip.is_compiling()
