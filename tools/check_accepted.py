"""Holds what a program's graphs are said to serve against torch: the program is run here, then each
compiled frame is asked with sizes inside and just outside of those said, by its guards and, where
the program called it itself, by a call. `python tools/check_accepted.py PROGRAM [ARGUMENTS]`."""

from __future__ import annotations

import contextlib
import importlib
import inspect
import json
import os
import random
import runpy
import sys
from collections import Counter
from collections.abc import Callable, Iterable
from functools import partial
from typing import Any, NamedTuple, cast

from compilediag.receipt.schema.compiles import AcceptedSizes
from compilediag.runs.watch import watch
from compilediag_harness.torch_internals.torch_guards import get_cache_entries

torch: Any = importlib.import_module("torch")
convert_frame: Any = importlib.import_module("torch._dynamo.convert_frame")

Frame = tuple[str, int]


class Call(NamedTuple):
    """A frame that torch compiled, with its locals and modes."""

    code: Any
    given: dict[str, Any]
    grad: bool
    inference: bool
    manager: Any
    """What evaluates the guards of that compile, which is not in torch's cache yet."""


def run_and_check(path: str) -> Counter[str]:
    """Run a program and check each claim; prints those that are wrong. A claim whose call cannot be
    made any more at the end, as after `eval()`, is asked right after its compile in a second run.
    """
    compiled: dict[Any, tuple[Any, Any]] = {}
    calls: dict[Frame, Call] = {}
    _remember_compiled(compiled)
    remove = _watch_compiles(lambda frame, _, call: calls.__setitem__(frame, call))
    with watch() as seen, contextlib.suppress(SystemExit):
        runpy.run_path(path, run_name="__main__")
    remove()
    counts: Counter[str] = Counter()
    again: dict[tuple[Frame, str], list[AcceptedSizes]] = {}
    for group in seen.receipt.compile.accepted_sizes:
        frame = os.path.realpath(group.frame.file), group.frame.line
        counts["claims"] += 1
        print("claim", group.frame.function, json.dumps(group.dimensions), group.spans)
        if (call := calls.get(frame)) is None:
            continue
        if _is_accepted(call, call.given):
            counts += _check_group(group, call, compiled.get(call.code))
        else:
            again.setdefault((frame, group.compile_id), []).append(group)

    def check_again(frame: Frame, compile_id: str, call: Call) -> None:
        for group in again.pop((frame, compile_id), ()):
            counts.update(_check_group(group, call, None))

    if again:
        torch._dynamo.reset()
        _watch_compiles(check_again)
        with contextlib.suppress(SystemExit):
            runpy.run_path(path, run_name="__main__")
        counts["claims not asked"] += sum(map(len, again.values()))
    return counts


def _remember_compiled(compiled: dict[Any, tuple[Any, Any]]) -> None:
    """Store each compiled callable by its code, with the object whose method it is."""
    original = torch.compile

    def compile_callable(model: Any = None, **options: Any) -> Any:
        if model is None:
            return partial(compile_callable, **options)
        made = original(model, **options)
        function = model.forward if isinstance(model, torch.nn.Module) else model
        owner = getattr(function, "__self__", None)
        compiled[getattr(inspect.unwrap(function), "__code__", None)] = made, owner
        return made

    torch.compile = compile_callable


def _watch_compiles(report: Callable[[Frame, str, Call], None]) -> Callable[[], None]:
    """Report each frame that was compiled, before its call goes on."""
    convert = convert_frame.ConvertFrameAssert.__call__

    def compile_frame(self: Any, frame: Any, *args: Any, **kwargs: Any) -> Any:
        code = frame.f_code
        given = dict(frame.f_locals), torch.is_grad_enabled(), torch.is_inference_mode_enabled()
        result = convert(self, frame, *args, **kwargs)
        if result.guarded_code is not None:
            made = result.guarded_code
            where = os.path.realpath(code.co_filename), code.co_firstlineno
            report(where, str(made.compile_id), Call(code, *given, made.guard_manager))
        return result

    convert_frame.ConvertFrameAssert.__call__ = compile_frame
    return lambda: setattr(convert_frame.ConvertFrameAssert, "__call__", convert)


def _check_group(
    group: AcceptedSizes, call: Call, compiled: tuple[Any, Any] | None
) -> Counter[str]:
    counts: Counter[str] = Counter()
    code = call.code
    function, owner = compiled or (None, None)
    arguments = list(code.co_varnames[: code.co_argcount])
    if owner is not None and call.given.get(arguments.pop(0)) is not owner:
        function = None
    simple = not code.co_flags & (inspect.CO_VARARGS | inspect.CO_VARKEYWORDS)
    with torch.inference_mode(call.inference), torch.set_grad_enabled(call.grad):
        for size in _choose_sizes(group):
            claim = any(first <= size <= last for first, last in group.spans)
            varied = _resize(call.given, group.dimensions, size)
            answers = {"by guards": _is_accepted(call, varied)}
            if function is not None and simple:
                answers["by a call"] = _is_served(function, code, [varied[a] for a in arguments])
            for how, answer in answers.items():
                counts[f"sizes {how}"] += 1
                if answer != claim:
                    counts[f"WRONG {how}"] += 1
                    print("WRONG", how, code.co_name, group, size, "torch serves it:", answer)
    return counts


def _choose_sizes(group: AcceptedSizes) -> Iterable[int]:
    draw = random.Random(0)  # noqa: S311 - no secret
    near = {at + by for span in group.spans[:8] for at in span for by in (-1, 0, 1)}
    near |= {0, 1, 2, 3, 16, 17, group.size, *(draw.randint(2, 300) for _ in range(6))}
    return sorted(size for size in near if 0 <= size <= min(group.largest, 5000))


def _is_accepted(call: Call, given: dict[str, Any]) -> bool:
    managers = [call.manager, *(entry.guard_manager for entry in get_cache_entries(call.code))]
    with torch.inference_mode(call.inference), torch.set_grad_enabled(call.grad):
        return any(manager.check(given) for manager in managers)


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
            members = cast("dict[Any, Any]", value)
            return {key: copy(f"{path}[{key!r}]", its) for key, its in members.items()}
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
