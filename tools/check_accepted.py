"""Holds what a program's graphs are said to serve against torch: the program is run here, then each
compiled frame is asked with sizes inside and just outside of those said, by its guards and, where
the program called it itself, by a call. `python tools/check_accepted.py PROGRAM [ARGUMENTS]`."""

from __future__ import annotations

import contextlib
import inspect
import json
import os
import random
import runpy
import sys
from collections import Counter
from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch._C._dynamo.eval_frame import _debug_get_cache_entry_list as get_entries
from torch._dynamo import convert_frame

from compilediag.receipt.schema.compiles import AcceptedSizes
from compilediag.runs.watch import watch

Call = tuple[Any, dict[str, Any], bool, bool]
"""Code, locals, grad mode and inference mode of a frame that torch compiled."""


def run_and_check(path: str) -> Counter[str]:
    """Run a program and check each claim; prints those that are wrong."""
    compiled: dict[Any, tuple[Any, Any]] = {}
    calls: dict[tuple[str, int], Call] = {}
    _remember_compiled(compiled)
    _remember_calls(calls)
    with watch() as seen, contextlib.suppress(SystemExit):
        runpy.run_path(path, run_name="__main__")
    counts: Counter[str] = Counter()
    for group in seen.receipt.compile.accepted_sizes:
        call = calls.get((os.path.realpath(group.frame.file), group.frame.line))
        counts["claims"] += 1
        print("claim", group.frame.function, json.dumps(group.dimensions), group.spans)
        if call is None:
            counts["claims without a frame"] += 1
        else:
            counts += _check_group(group, call, compiled.get(call[0]))
    return counts


def _remember_compiled(compiled: dict[Any, tuple[Any, Any]]) -> None:
    """Store each compiled callable by its code, with the object whose method it is."""
    original = torch.compile

    def compile_callable(model: Any = None, **options: Any) -> Any:
        if model is None:
            return lambda function: compile_callable(function, **options)
        made = original(model, **options)
        function = model.forward if isinstance(model, torch.nn.Module) else model
        owner = getattr(function, "__self__", None)
        compiled[getattr(inspect.unwrap(function), "__code__", None)] = made, owner
        return made

    torch.compile = compile_callable


def _remember_calls(calls: dict[tuple[str, int], Call]) -> None:
    convert = convert_frame.ConvertFrameAssert.__call__

    def call(self: Any, frame: Any, *args: Any, **kwargs: Any) -> Any:
        code = frame.f_code
        given = dict(frame.f_locals), torch.is_grad_enabled(), torch.is_inference_mode_enabled()
        result = convert(self, frame, *args, **kwargs)
        if result.guarded_code is not None:
            calls[os.path.realpath(code.co_filename), code.co_firstlineno] = (code, *given)
        return result

    convert_frame.ConvertFrameAssert.__call__ = call


def _check_group(
    group: AcceptedSizes, call: Call, compiled: tuple[Any, Any] | None
) -> Counter[str]:
    counts: Counter[str] = Counter()
    code, given, grad, inference = call
    function, owner = compiled or (None, None)
    arguments = list(code.co_varnames[: code.co_argcount])
    if owner is not None and given.get(arguments.pop(0)) is not owner:
        function = None
    simple = not code.co_flags & (inspect.CO_VARARGS | inspect.CO_VARKEYWORDS)
    with torch.inference_mode(inference), torch.set_grad_enabled(grad):
        if not _is_accepted(code, given):
            counts["groups whose world changed"] += 1
            return counts
        for size in _choose_sizes(group):
            claim = any(first <= size <= last for first, last in group.spans)
            varied = _resize(given, group.dimensions, size)
            answers = {"by guards": _is_accepted(code, varied)}
            if function is not None and simple:
                answers["by a call"] = _is_served(function, code, [varied[a] for a in arguments])
            for how, answer in answers.items():
                counts[f"sizes {how}"] += 1
                if answer != claim:
                    counts[f"WRONG {how}"] += 1
                    print("WRONG", how, code.co_name, group, size, "torch serves it:", answer)
    return counts


def _choose_sizes(group: AcceptedSizes) -> Iterable[int]:
    draw = random.Random(0)
    near = {at + by for span in group.spans[:8] for at in span for by in (-1, 0, 1)}
    near |= {0, 1, 2, 3, 16, 17, group.size, *(draw.randint(2, 300) for _ in range(6))}
    return sorted(size for size in near if 0 <= size <= min(group.largest, 5000))


def _is_accepted(code: Any, given: dict[str, Any]) -> bool:
    return any(entry.guard_manager.check(given) for entry in get_entries(code))


def _is_served(compiled: Callable[..., Any], code: Any, arguments: list[Any]) -> bool:
    try:
        with torch.compiler.set_stance("fail_on_recompile"):
            compiled(*arguments)
    except Exception as error:
        text = str(error)
        return "fail_on_recompile" not in text or f"'{code.co_name}'" not in text
    return True


def _resize(given: dict[str, Any], dimensions: Iterable[str], size: int) -> dict[str, Any]:
    """Make the locals with other sizes: tensors of zeros whose dimensions lie in the same order."""
    wanted: dict[str, dict[int, int]] = {}
    for dimension in dimensions:
        path, _, dim = dimension.rpartition(".shape[")
        wanted.setdefault(path, {})[int(dim[:-1])] = size
    made: dict[int, Any] = {}

    def copy(path: str, value: Any) -> Any:
        if type(value) in (list, tuple):
            return type(value)(copy(f"{path}[{at}]", its) for at, its in enumerate(value))
        if type(value) is dict:
            return {key: copy(f"{path}[{key!r}]", its) for key, its in value.items()}
        if path not in wanted or id(value) in made:
            return made.get(id(value), value)
        shape = [wanted[path].get(dim, its) for dim, its in enumerate(value.shape)]
        order = sorted(range(value.dim()), key=lambda d: (-value.stride(d), -value.shape[d], d))
        made[id(value)] = torch.zeros([shape[d] for d in order], dtype=value.dtype).permute(
            [order.index(d) for d in range(value.dim())]
        )
        return made[id(value)].requires_grad_(value.requires_grad)

    return {name: copy(name, value) for name, value in given.items()}


if __name__ == "__main__":
    sys.argv = sys.argv[1:]
    sys.path.insert(0, os.path.dirname(os.path.abspath(sys.argv[0])))
    for name, count in run_and_check(sys.argv[0]).items():
        print(f"{count:6} {name}")
