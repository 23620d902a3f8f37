"""What torch itself counts for one program: an independent witness for the scenario tests.

    python tests/support/oracle.py OUT.json PROGRAM.py [ARGUMENTS...]

Nothing of compilediag is imported. Three sources, all torch's own: the compilation metrics rows
(their deque is enlarged before the program can fill it), the structured trace that TORCH_TRACE
writes (graph-break sites), and the log of TORCH_LOGS, where torch 2.7 names the breaks that made it
skip a frame, which its trace does not. The program starts before torch is imported, so a program
that sets environment variables first behaves as it does alone.

Counts, with the names of `receipt.compile`:

frames                distinct (epoch, frame id) of forward rows, skipped frames included
compiles              forward rows that ended with guarded code
recompiles            those of them that carry a recompile reason
graphs                those of them whose graph holds at least one operation
graph_breaks          distinct file:line that torch names in its graph-break reports
eager_fallbacks       frames with a forward row that ended without guarded code
recompile_limit_hits  frames whose row says that a recompile limit was reached

torch 2.7 sets `has_guarded_code` for a frame it gave up because of a break in a loop. Such a row
is told by `ir_count`, which torch fills only when it reached the end of the frame or a place to
resume at: without it and without a graph, there is no guarded code.
"""

import importlib.abc
import importlib.machinery
import json
import os
import re
import runpy
import sys
import tempfile
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

Row = dict[str, Any]
"""One compilation metrics row, cut down to what is counted."""

METRICS_ROWS_KEPT = 100_000
"""torch keeps 64 rows unless told otherwise."""

_FIELDS = dict.fromkeys(
    (
        *("compile_id", "co_name", "is_forward", "has_guarded_code", "graph_op_count"),
        *("ir_count", "recompile_reason", "fail_type", "fail_reason"),
    )
)
"""What is read of a row; a trace leaves some out."""

_SITE = re.compile(r"Graph break in user code at (.+?):(\d+)")
_SKIPPED = re.compile(r"Graph break: skip: from user code at:\n((?:.*\n)*?)(?=Traceback|\S|\Z)")
_PLACE = re.compile(r'File "(.+?)", line (\d+)')
_LOG_PREFIX = re.compile(r"^[A-Z]\d{4} .*?\] (?:\[\S+\] )*\[__graph_breaks\] ?", re.MULTILINE)
_LIMIT = re.compile(r"recompile_limit|recompile limit|cache_size_limit", re.IGNORECASE)


def counts(rows: Iterable[Row], break_texts: Iterable[str]) -> dict[str, int]:
    """The counts of `receipt.compile`, from torch's rows and graph-break reports."""
    forward = [row for row in rows if row["forward"]]
    guarded = [row for row in forward if row["guarded"]]
    limited = [row for row in forward if not row["guarded"] and _LIMIT.search(row["failure"])]
    fallen = [row for row in forward if not row["guarded"]]
    return {
        "frames": len({_frame(row) for row in forward}),
        "compiles": len(guarded),
        "recompiles": sum(row["reason"] is not None for row in guarded),
        "graphs": sum(bool(row["operations"]) for row in guarded),
        "graph_breaks": len(break_sites(break_texts)),
        "eager_fallbacks": len({_frame(row) for row in fallen}),
        "recompile_limit_hits": len({_frame(row) for row in limited}),
    }


def break_sites(texts: Iterable[str]) -> set[tuple[str, int]]:
    """The places torch names, each once; repeats come with recompiles and restarts."""
    sites: set[tuple[str, int]] = set()
    for text in texts:
        found = _SITE.findall(text)
        for stack in _SKIPPED.findall(text):
            found += _PLACE.findall(stack)[-1:]
        sites.update((file, int(line)) for file, line in found)
    return sites


def _frame(row: Row) -> tuple[Any, str]:
    head, _, _ = str(row["id"]).rpartition("/")
    return row["epoch"], head


def read_rows(resets: list[int]) -> list[Row]:
    """torch's compilation metrics of this process; `resets` says where each epoch ends."""
    utils = sys.modules.get("torch._dynamo.utils")
    if utils is None:
        return []
    return [
        _row(metric, sum(number >= end for end in resets))
        for number, metric in enumerate(utils.get_compilation_metrics())
    ]


def _row(metric: Any, epoch: int) -> Row:
    gave_up = metric.graph_op_count is None and metric.ir_count is None
    return {
        "id": metric.compile_id,
        "epoch": epoch,
        "function": metric.co_name,
        "forward": metric.is_forward is not False,
        "guarded": bool(metric.has_guarded_code) and not gave_up,
        "operations": metric.graph_op_count,
        "reason": metric.recompile_reason,
        "failure": f"{metric.fail_type or ''} {metric.fail_reason or ''}".strip(),
    }


def read_trace_rows(folder: Path) -> list[Row]:
    """The rows of every process that wrote a trace into a folder. A frame id that a process gives
    again is of the next epoch: `torch._dynamo.reset()` counts from 0 again."""
    rows: list[Row] = []
    for number, path in enumerate(sorted(folder.glob("*.log"))):
        seen: set[str] = set()
        epoch = 0
        for metric in _trace_metrics(path):
            row = _row(SimpleNamespace(**{**_FIELDS, **metric}), 0)
            if row["forward"] and row["id"] in seen:
                seen, epoch = set(), epoch + 1
            if row["forward"]:
                seen.add(row["id"])
            rows.append({**row, "epoch": (number, epoch)})
    return rows


def read_break_texts(folder: Path) -> list[str]:
    """The payloads of the graph-break artifacts in a TORCH_TRACE folder."""
    texts: list[str] = []
    for path in sorted(folder.glob("*.log")):
        wanted = False
        for line in path.read_text(encoding="utf-8", errors="replace").splitlines():
            if line.startswith("\t"):
                if wanted:
                    texts[-1] += line[1:] + "\n"
                continue
            wanted = '"name": "dynamo_graph_break_reason"' in line
            if wanted:
                texts.append("")
    return texts


def read_skip_texts(folder: Path) -> list[str]:
    """The places of breaks that made Dynamo skip a frame, by the rows of a TORCH_TRACE folder:
    torch 2.7 writes no artifact of them."""
    texts: list[str] = []
    for path in sorted(folder.glob("*.log")):
        for row in _trace_metrics(path):
            if row.get("fail_type") == "Unsupported" and row.get("fail_user_frame_filename"):
                place = f"{row['fail_user_frame_filename']}:{row['fail_user_frame_lineno']}"
                texts.append(f"Graph break in user code at {place}")
    return texts


def _trace_metrics(path: Path) -> Iterable[Row]:
    """The compilation metrics that one process wrote into its trace."""
    for line in path.read_text(encoding="utf-8", errors="replace").splitlines():
        if not line.startswith("\t") and '] {"compilation_metrics": {' in line:
            yield json.loads(line.partition("] ")[2])["compilation_metrics"]


def read_log(path: Path) -> str:
    """What torch logged about graph breaks, without the prefix of each line."""
    if not path.exists():
        return ""
    return _LOG_PREFIX.sub("", path.read_text(encoding="utf-8", errors="replace"))


class _AfterImport(importlib.abc.MetaPathFinder):
    """Runs a function right after a module of torch was executed for the first time."""

    def __init__(self, actions: Mapping[str, Callable[[ModuleType], None]]) -> None:
        self._actions = actions

    def find_spec(self, name: str, path: Any, target: Any = None) -> Any:
        if name not in self._actions:
            return None
        spec = importlib.machinery.PathFinder.find_spec(name, path)
        if spec is None or spec.loader is None:
            return None
        execute, action = spec.loader.exec_module, self._actions[name]

        def exec_module(module: ModuleType) -> None:
            execute(module)
            action(module)

        spec.loader.exec_module = exec_module  # type: ignore[method-assign]
        return spec


def _watch_resets(resets: list[int]) -> Callable[[ModuleType], None]:
    def install(dynamo: ModuleType) -> None:
        original = dynamo.reset

        def reset() -> None:
            resets.append(len(sys.modules["torch._dynamo.utils"].get_compilation_metrics()))
            original()

        dynamo.reset = reset  # type: ignore[attr-defined]

    return install


def _keep_rows(utils: ModuleType) -> None:
    utils.set_compilation_metrics_limit(METRICS_ROWS_KEPT)


def observe(program: str, arguments: list[str]) -> dict[str, Any]:
    """Runs `program` in this process as `__main__` and returns its exit code, rows and counts."""
    resets: list[int] = []
    actions = {"torch._dynamo.utils": _keep_rows, "torch._dynamo": _watch_resets(resets)}
    sys.meta_path.insert(0, _AfterImport(actions))
    sys.argv = [program, *arguments]
    sys.path[0] = str(Path(program).resolve().parent)
    with tempfile.TemporaryDirectory(prefix="oracle-") as folder:
        log = Path(folder, "graph_breaks.txt")
        os.environ.update(TORCH_TRACE=folder, TORCH_LOGS="graph_breaks", TORCH_LOGS_OUT=str(log))
        exit_code = _run(program)
        rows, texts = read_rows(resets), [*read_break_texts(Path(folder)), read_log(log)]
    return {
        "exit_code": exit_code,
        "counts": counts(rows, texts),
        "rows": rows,
        "breaks": texts,
        "sites": sorted(break_sites(texts)),
    }


def _run(program: str) -> int:
    try:
        runpy.run_path(program, run_name="__main__")
    except SystemExit as stop:
        return stop.code if isinstance(stop.code, int) else int(stop.code is not None)
    except BaseException as error:
        print(f"{type(error).__name__}: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    output, target, *rest = sys.argv[1:]
    report = observe(target, rest)
    Path(output).write_text(json.dumps(report, indent=1), encoding="utf-8")
