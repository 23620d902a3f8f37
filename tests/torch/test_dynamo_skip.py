"""Marks that keep Dynamo away from our functions, on any torch."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from compilediag_harness.torch_internals import dynamo_skip


def ours() -> int:
    return 1


def native(marked: list[tuple[Any, Any]]) -> Any:
    """What `torch._C._dynamo.eval_frame` offers."""
    return SimpleNamespace(
        _FrameAction=SimpleNamespace(SKIP="skip", DEFAULT="default"),
        _FrameExecStrategy=lambda own, callees: (own, callees),
        set_code_exec_strategy=lambda code, strategy: marked.append((code, strategy)),
    )


def torch_with(eval_frame: Any) -> Any:
    return SimpleNamespace(_C=SimpleNamespace(_dynamo=SimpleNamespace(eval_frame=eval_frame)))


def test_functions_are_marked_with_what_they_call() -> None:
    """What we call is ours as well; what the user's code below us calls is not."""
    marked: list[tuple[Any, Any]] = []
    torch = torch_with(native(marked))
    assert dynamo_skip.skip_in_dynamo(torch, ours, len)
    assert dynamo_skip.skip_in_dynamo(torch, ours, callees=True)
    assert marked == [(ours.__code__, ("skip", "skip")), (ours.__code__, ("skip", "default"))]


def test_a_torch_without_the_mark_is_told() -> None:
    """Nothing raises: the functions then may be compiled, and do nothing while they are traced."""
    assert not dynamo_skip.skip_in_dynamo(torch_with(SimpleNamespace()), ours)
    assert not dynamo_skip.skip_in_dynamo(SimpleNamespace(), ours)


def test_nothing_is_being_compiled_before_torch_is_there(monkeypatch: pytest.MonkeyPatch) -> None:
    """The question can be asked in a program without torch, and is torch's own with it."""
    monkeypatch.setattr(dynamo_skip, "is_compiling", dynamo_skip._never)
    assert not dynamo_skip.is_compiling()
    monkeypatch.setattr(dynamo_skip, "is_traced", dynamo_skip._never)
    compiler = SimpleNamespace(is_compiling=lambda: True, is_dynamo_compiling=lambda: True)
    dynamo_skip.bind(SimpleNamespace(compiler=compiler))
    assert dynamo_skip.is_compiling()


def test_this_torch_has_the_mark() -> None:
    """The contract with torch that the module rests on."""
    import torch

    assert dynamo_skip.skip_in_dynamo(torch, ours)
