"""Which functions of compilediag_harness Dynamo would be called with, in an attached process.

    python tests/support/offered_frames.py run | watch

Prints, as JSON, the places of all code of the package, of the code that Dynamo is offered when it
is called in compiled code, and of the code that could not be asked. Every code object is called,
with arguments that it cannot work with and without the names that it needs: it ends at once, and
Dynamo's own frame evaluation has decided by then.
"""

import gc
import importlib
import inspect
import json
import pkgutil
import sys
import tempfile
from collections.abc import Iterator
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from types import CellType, CodeType, FunctionType
from typing import Any

PACKAGE = "compilediag_harness"
BEFORE_TORCH = "bootstrap"
"""The folder whose code has run before torch is there, and is gone."""


COMPREHENSIONS = ("<genexpr>", "<listcomp>", "<setcomp>", "<dictcomp>")


class Offered(Exception):
    """Dynamo was called."""


def attached(way: str) -> AbstractContextManager[Any]:
    """This process, attached as by `compilediag run`, or by `watch()`; with torch, where something
    has been compiled."""
    if way == "run":
        from compilediag_harness import process

        process.start(tempfile.mkdtemp())
        return nullcontext()
    import torch  # noqa: F401 - as in most programs, before the first block is watched

    from compilediag.runs.watch import watch

    return watch()


def compile_something() -> None:
    import torch

    double = torch.compile(lambda x, n: x * n, backend="eager", dynamic=False)
    for n in (2, 3):
        double(torch.ones(1), n)


def import_all() -> None:
    """Every module of the package, whenever it would be imported."""
    package = importlib.import_module(PACKAGE)
    for module in pkgutil.walk_packages(package.__path__, f"{PACKAGE}."):
        importlib.import_module(module.name)


def all_code() -> dict[int, tuple[CodeType, str]]:
    """The code of every function that is alive and belongs to the package, and of those inside of
    it, with its place; also of what `dataclasses` has generated there. By address: code of the
    same text is equal, and is another object for Dynamo."""
    folder = str(Path(str(sys.modules[PACKAGE].__file__)).parent)
    found: dict[int, tuple[CodeType, str]] = {}
    for one in gc.get_objects():
        if type(one) is not FunctionType:
            continue
        code, home = one.__code__, str(one.__globals__.get("__name__"))
        if code.co_filename.startswith(folder):
            found.update({id(each): (each, place(each)) for each in with_nested(code)})
        elif home.partition(".")[0] == PACKAGE:
            found[id(code)] = code, f"{home} {one.__qualname__}"
    return found


def with_nested(code: CodeType) -> Iterator[CodeType]:
    """Code of functions. That of modules and of the bodies of classes runs once, when they are
    imported, and so do comprehensions in it."""
    is_function = bool(code.co_flags & inspect.CO_OPTIMIZED)
    if is_function:
        yield code
    for constant in code.co_consts:
        if isinstance(constant, CodeType) and (
            is_function or constant.co_name not in COMPREHENSIONS
        ):
            yield from with_nested(constant)


def written_code() -> set[str]:
    """The places of all functions in the source text of the package."""
    folder = Path(str(sys.modules[PACKAGE].__file__)).parent
    return {
        place(code)
        for path in folder.rglob("*.py")
        if BEFORE_TORCH not in path.parts
        for code in with_nested(compile(path.read_text(encoding="utf-8"), str(path), "exec"))
    }


def is_offered(code: CodeType) -> bool:
    """Whether Dynamo is called with a frame of this code."""
    from torch._C._dynamo.eval_frame import set_eval_frame

    seen: list[CodeType] = []

    def called(frame: Any, *_: Any) -> Any:
        seen.append(frame.f_code)
        raise Offered  # no frame goes on: nothing is marked by the answer, and nothing is done

    cells = tuple(CellType(None) for _ in code.co_freevars)
    function = FunctionType(code, {"__builtins__": {}}, None, None, cells)
    # The interpreter takes what a comprehension gets for an iterator, and does not look.
    dummy = iter(()) if code.co_name in COMPREHENSIONS else None
    arguments = [dummy] * code.co_argcount
    first, last = code.co_argcount, code.co_argcount + code.co_kwonlyargcount
    names = code.co_varnames[first:last]
    prior = set_eval_frame(called)
    try:
        result: Any = function(*arguments, **dict.fromkeys(names))
        if code.co_flags & (inspect.CO_GENERATOR | inspect.CO_COROUTINE):
            result.send(None)  # Python 3.10 evaluates the frame of a generator here at first
    except BaseException:
        pass  # as was to be expected
    finally:
        set_eval_frame(prior)
    return any(one is code for one in seen)


def place(code: CodeType) -> str:
    _, _, file = code.co_filename.rpartition(f"{PACKAGE}/")
    return f"{file}:{code.co_firstlineno} {code.co_name}"


def control() -> None:
    """Not of the package: Dynamo is offered it."""


def main(way: str) -> None:
    with attached(way):
        compile_something()
        import_all()
        asked = all_code().values()
        places = {where for _, where in asked}
        told = {
            "all": sorted(places),
            "offered": sorted({where for code, where in asked if is_offered(code)}),
            "not asked": sorted(written_code() - places),
            "control": is_offered(control.__code__),
        }
    print(json.dumps(told))


if __name__ == "__main__":
    main(sys.argv[1])
