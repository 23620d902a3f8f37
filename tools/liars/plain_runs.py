"""Plain runs of two states of a program, compared: the truth that a proof is held against.

Imports nothing of compilediag. Each run is a fork of a process that has torch, and its random
numbers start with the same seed. Compared are the exit code, every printed line, the tensors and
numbers that the program's names hold at its end, and what it saved. What differs between two runs
of the same text is left out, and so is a number beside a unit of time. torch's metrics say what was
compiled.
"""

from __future__ import annotations

import contextlib
import gc
import importlib
import json
import math
import os
import random
import re
import select
import shutil
import signal
import sys
import tempfile
import traceback
import types
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

RELATIVE, ABSOLUTE = 1e-4, 1e-5
"""A difference is within the tolerance where it is at most ABSOLUTE + RELATIVE * |value|."""
MOST_VALUES = 20_000
"""Of one tensor, those that are compared."""

NUMBER = re.compile(r"(?<![\w.])[-+]?(?:\d+\.?\d*(?:e[-+]?\d+)?|nan|inf)(?!\w)", re.IGNORECASE)
TIMED = re.compile(NUMBER.pattern.replace(r"(?!\w)", "") + r"(?= ?(?:m?s|it/s|samples/s)\b)")

RESUMED = "torch_dynamo_resume_in"
LIMIT = re.compile(r"recompile.limit|cache_size_limit", re.IGNORECASE)


@dataclass(frozen=True)
class PlainRun:
    """One run without compilediag."""

    exit_code: int | None
    """None where it did not end in time."""
    printed: list[str] = field(default_factory=list[str])
    values: dict[str, list[float]] = field(default_factory=dict[str, list[float]])
    """At the end, by the name that holds them."""
    counts: dict[str, int] = field(default_factory=dict[str, int])
    error: str = ""


class Difference(NamedTuple):
    """How far two runs are apart."""

    kind: str
    """"equal", "smaller" (one to ten times the tolerance), "wrong" (more), "crashes", "hangs"."""
    where: str = ""
    ratio: float = 0.0
    """To the tolerance; infinite where text, shapes or counts differ."""


# --- a run ----------------------------------------------------------------------------------------


def load_torch() -> None:
    """Imports torch and what a first compile imports, once for all runs of this process."""
    importlib.import_module("numpy")
    torch: Any = importlib.import_module("torch")
    torch.set_num_threads(1)
    read, write = os.pipe()
    if (pid := os.fork()) == 0:
        with contextlib.suppress(BaseException):
            before = set(sys.modules)
            for backend in ("eager", "aot_eager"):
                layer = torch.nn.Linear(2, 2)
                torch.compile(layer, backend=backend, dynamic=True)(
                    torch.ones(3, 2)
                ).sum().backward()
                torch.optim.AdamW(layer.parameters()).step()
            os.write(write, "\n".join(set(sys.modules) - before).encode())
        os._exit(0)
    os.close(write)
    with os.fdopen(read) as names:
        for name in sorted(names.read().split()):
            with contextlib.suppress(Exception):
                __import__(name)
    os.waitpid(pid, 0)
    gc.collect()
    gc.freeze()  # a fork that collects garbage would copy what it looks at


def run_plain(source: str, seed: int = 0, limit_s: float = 60.0) -> PlainRun:
    """Runs a program in a fork, in an empty folder."""
    folder = Path(tempfile.mkdtemp(prefix="plain-"))
    try:
        program, report = folder / "work" / "prog.py", folder / "report.json"
        program.parent.mkdir()
        program.write_text(source, encoding="utf-8")
        sys.stdout.flush()
        if (pid := os.fork()) == 0:
            os.setsid()
            _be_program(program, report, folder / "output", seed)
        code = _wait(pid, limit_s)
        if code is None:
            return PlainRun(None)
        if (fault := report.with_name("fault")).is_file():
            raise RuntimeError(fault.read_text(encoding="utf-8"))
        if not report.is_file():
            return PlainRun(code or 1, error="the process ended itself")
        return PlainRun(**json.loads(report.read_text(encoding="utf-8")))
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _wait(pid: int, limit_s: float) -> int | None:
    """Exit code of a child; None where it had to be ended."""
    handle = os.pidfd_open(pid)
    ready, _, _ = select.select([handle], [], [], limit_s)
    os.close(handle)
    with contextlib.suppress(ProcessLookupError):
        os.killpg(pid, signal.SIGKILL)  # what it has started too
    _, status = os.waitpid(pid, 0)
    return os.waitstatus_to_exitcode(status) if ready else None


def _be_program(program: Path, report: Path, output: Path, seed: int) -> None:
    """Runs the program in this process, writes what it left, and ends the process."""
    code, error = 70, ""
    try:
        os.chdir(program.parent)
        stream = os.open(output, os.O_CREAT | os.O_WRONLY, 0o600)
        os.dup2(stream, 1)
        os.dup2(os.open(os.devnull, os.O_WRONLY), 2)
        sys.stdout = open(1, "w", encoding="utf-8", closefd=False)  # noqa: SIM115
        main = types.ModuleType("__main__")
        main.__file__, sys.modules["__main__"] = str(program), main
        sys.argv[:], sys.path[:0] = ["prog.py"], [str(program.parent)]
        operations = _count_operations()
        _seed(seed)
        code, error = _execute(program, main)
        sys.stdout.flush()
        run = PlainRun(
            code,
            output.read_text(encoding="utf-8", errors="replace").splitlines(),
            dict(_find_values(main, program.parent)),
            {**_count_compiles(), "operations in graphs": sum(operations)},
            error,
        )
        report.write_text(json.dumps(asdict(run)), encoding="utf-8")
    except BaseException:
        report.with_name("fault").write_text(traceback.format_exc(), encoding="utf-8")
    os._exit(code)


def _execute(program: Path, main: types.ModuleType) -> tuple[int, str]:
    try:
        exec(compile(program.read_bytes(), str(program), "exec", dont_inherit=True), vars(main))  # noqa: S102
    except SystemExit as stop:
        return (stop.code if isinstance(stop.code, int) else int(stop.code is not None)), ""
    except BaseException as why:
        return 1, f"{type(why).__name__}: {str(why).strip().partition(chr(10))[0][:200]}"
    return 0, ""


def _seed(seed: int) -> None:
    numpy, torch = (importlib.import_module(name) for name in ("numpy", "torch"))
    random.seed(seed)
    numpy.random.seed(seed % 2**32)
    torch.manual_seed(seed)  # its own start differs in each process


def _count_operations() -> list[int]:
    """Operations of each graph, once for each of its calls, with backends that torch names."""
    from torch._dynamo.backends import registry

    compilers: Any = registry._COMPILER_FNS  # pyright: ignore[reportPrivateUsage]
    run: list[int] = []

    def counted(backend: Any) -> Any:
        def compile_graph(graph: Any, inputs: Any, **options: Any) -> Any:
            operations = sum(node.op.startswith("call") for node in graph.graph.nodes)
            compiled = backend(graph, inputs, **options)

            def call(*arguments: Any) -> Any:
                run.append(operations)
                return compiled(*arguments)

            return call

        compile_graph._tags = backend._tags  # type: ignore[attr-defined]
        return compile_graph

    for name in ("eager", "aot_eager"):
        compilers[name] = counted(registry.lookup_backend(name))
    return run


def _count_compiles() -> dict[str, int]:
    from torch._dynamo import utils

    rows: list[Any] = [
        row for row in utils.get_compilation_metrics() if row.is_forward is not False
    ]
    return {
        "graphs": sum(bool(row.graph_op_count) for row in rows),
        "recompiles": sum(bool(row.has_guarded_code and row.recompile_reason) for row in rows),
        "graph breaks": sum(utils.counters["graph_break"].values()),
        # Not all are reported: one at a branch on a tensor is seen by where it resumes alone.
        "resumed functions": len({row.co_name for row in rows if RESUMED in (row.co_name or "")}),
        "eager frames": sum(not row.has_guarded_code for row in rows),
        "limit hits": sum(bool(LIMIT.search(row.fail_reason or "")) for row in rows),
    }


def _find_values(main: types.ModuleType, folder: Path) -> Iterator[tuple[str, list[float]]]:
    """What the program's names hold, and what it saved."""
    import torch

    for name, value in list(vars(main).items()):
        if not name.startswith("__") and not isinstance(value, types.ModuleType):
            yield from _flatten(name, value)
    for path in sorted(folder.rglob("*.pt")):
        saved: Any = torch.load(path, weights_only=True)
        yield from _flatten(f"{path.name}:", saved)


def _flatten(name: str, value: Any) -> Iterator[tuple[str, list[float]]]:
    import torch

    if isinstance(value, torch.nn.Module):
        if not hasattr(value, "_orig_mod"):  # of what is compiled: has the names of its own
            yield from _flatten(f"{name}.state_dict()", value.state_dict())
    elif isinstance(value, torch.optim.Optimizer):
        yield from _flatten(f"{name}.state_dict()", value.state_dict())
    elif isinstance(value, torch.Tensor):
        plain: Any = value.detach().to_dense() if value.is_sparse else value.detach()
        flat = plain.reshape(-1)[:MOST_VALUES]
        yield name, (flat.abs() if flat.is_complex() else flat).double().tolist()
    elif isinstance(value, (bool, int, float)):
        yield name, [float(value)]
    elif isinstance(value, Mapping):
        for key, item in value.items():  # pyright: ignore[reportUnknownVariableType]
            yield from _flatten(f"{name}[{key!r}]", item)
    elif isinstance(value, (list, tuple)):
        for at, item in enumerate(value):  # pyright: ignore[reportUnknownVariableType,reportUnknownArgumentType]
            yield from _flatten(f"{name}[{at}]", item)


# --- two runs -------------------------------------------------------------------------------------


def compare(before: PlainRun, after: PlainRun, again: PlainRun | None = None) -> Difference:
    """Compares two states of a program; what differs in a second run of the first is noise."""
    if after.exit_code is None:
        return Difference("hangs", ratio=math.inf)
    if after.exit_code != before.exit_code:
        kind = "crashes" if after.error else "wrong"
        return Difference(kind, after.error or f"exit code {after.exit_code}", math.inf)
    worst = max(_differences(before, after, again or before), key=lambda item: item[1])
    where, ratio = worst
    kind = "wrong" if ratio > 10 else "smaller" if ratio > 1 else "equal"
    return Difference(kind, where, ratio)


def _differences(before: PlainRun, after: PlainRun, again: PlainRun) -> Iterator[tuple[str, float]]:
    yield "", 0.0
    if len(before.printed) != len(after.printed):
        yield f"{len(before.printed)} printed lines, {len(after.printed)} now", math.inf
        return
    for old, new, noise in zip(before.printed, after.printed, again.printed, strict=True):
        yield f"printed {old!r}, now {new!r}", _compare_lines(old, new, noise)
    for name, old in before.values.items():
        if (new := after.values.get(name)) is None:
            if ".pt:" in name:
                yield f"{name} is not saved", math.inf
        elif _compare_values(old, again.values.get(name, [])) == 0:
            yield name, _compare_values(old, new)
    for name in {*after.values} - {*before.values}:
        if ".pt:" in name:
            yield f"{name} is saved", math.inf


def _compare_lines(old: str, new: str, noise: str) -> float:
    old, new, noise = (TIMED.sub("T", line) for line in (old, new, noise))
    if NUMBER.sub("#", old) != NUMBER.sub("#", new):
        return math.inf
    ratios = [0.0]
    numbers = zip(*(NUMBER.findall(line) for line in (old, new, noise)), strict=False)
    for one, other, repeated in numbers:
        if one == repeated and one != other:
            places = len(one.lower().partition("e")[0].partition(".")[2])
            ratio = _compare_numbers(float(one), float(other))
            # One more in the last place that is shown may be rounding, but not of an integer.
            rounded = places and abs(float(one) - float(other)) < 1.5 * 10.0**-places
            ratios.append(min(ratio, 10.0) if rounded else ratio if places else math.inf)
    return max(ratios)


def _compare_values(old: Sequence[float], new: Sequence[float]) -> float:
    if len(old) != len(new):
        return math.inf
    return max((_compare_numbers(*pair) for pair in zip(old, new, strict=True)), default=0.0)


def _compare_numbers(old: float, new: float) -> float:
    if old == new or (math.isnan(old) and math.isnan(new)):
        return 0.0
    ratio = abs(old - new) / (ABSOLUTE + RELATIVE * abs(old))
    return math.inf if math.isnan(ratio) else ratio


def looks_better(before: Mapping[str, int], after: Mapping[str, int]) -> bool:
    """Whether by torch's counts something fell, and nothing that costs grew."""
    names = ("recompiles", "graph breaks", "resumed functions", "eager frames", "limit hits")
    pairs = [(before.get(name, 0), after.get(name, 0)) for name in names]
    return all(new <= old for old, new in pairs) and any(new < old for old, new in pairs)
