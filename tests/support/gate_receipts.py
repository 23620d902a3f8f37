"""Receipts for the tests of the gate, built from Timelines made by hand."""

from collections.abc import Callable, Sequence
from typing import Any

import msgspec
from timelines import FILE, attempt, false_guard, process, recompile, site, timeline

from compilediag.receipt.assemble import build_receipt
from compilediag.receipt.run_metadata import RunMetadata
from compilediag.receipt.schema.receipt import Receipt
from compilediag.rules.diagnose import diagnose
from compilediag.timeline.timeline import BreakSite, Compile
from compilediag_harness.wire import Location

BREAK = """Graph break in user code at /home/user/app.py:14
Graph Break Reason: Data-dependent branching
  Explanation: Detected data-dependent branching.
  Hint: Use `torch.cond`.

  Developer debug context: attempted to jump

 For more details about this graph break, please visit: https://x.org/gb/gb0170.html
User code traceback:
  File "/home/user/app.py", line 14, in forward
    if x.sum() > 0:
"""


def place(function: str, line: int = 10, file: str = FILE) -> Location:
    return Location(file, line, function)


def first(function: str = "forward", number: int = 0, **more: Any) -> Compile:
    """A frame's first compile."""
    return attempt(f"{number}/0", where=place(function, more.pop("line", 10)), **more)


def again(
    variable: str = "n",
    step: int = 1,
    number: int = 1,
    *,
    line: int = 10,
    seconds: float = 0.5,
    where: Location | None = None,
    frame: int = 0,
) -> Compile:
    """A recompile because of an integer argument, of a function at line 10."""
    where = where or place("forward")
    name, user = f"{frame}/{number}", place(where.function, line, where.file)
    guard = false_guard(f"L['{variable}']", f"L['{variable}'] == 2", user=user)
    cause = recompile(name, step=step, seconds=seconds, guards=[guard])
    return attempt(name, kind="recompile", step=step, seconds=seconds, cause=cause, where=where)


def eager(
    function: str = "helper", number: int = 5, epoch: int = 0, *, file: str = FILE
) -> Compile:
    """A frame that torch refused to compile."""
    return attempt(
        f"{number}/0",
        kind="failed",
        where=place(function, 40, file),
        graph_ops=None,
        fail_type="Unsupported",
        fail_reason="Attempted to call a skipped function\n  Explanation: ...",
        epoch=epoch,
    )


def branch(line: int = 14, function: str = "forward", file: str = FILE) -> BreakSite:
    """A graph break for a branch on data."""
    return site(BREAK, line=line, function=function, file=file)


def receipt(
    *compiles: Compile,
    breaks: Sequence[BreakSite] = (),
    name: str = "train",
    change: Callable[[dict[str, Any]], Any] = lambda raw: None,
    process_more: dict[str, Any] | None = None,
    nothing: bool = False,
    **run: Any,
) -> Receipt:
    """The receipt of these compiles, of one if none is given; `change` gets it as JSON."""
    made = compiles or (() if nothing else (first(),))
    seen = timeline(made, breaks=tuple(breaks), processes=(process(**(process_more or {})),))
    facts = {
        "receipt_id": "01JD3Q0000000000000000000Z",
        "created_at_utc": "2026-11-20T14:45:00Z",
        "status": "complete",
        "configuration_name": name,
        "exit_code": 0,
        **run,
    }
    raw = msgspec.json.decode(
        msgspec.json.encode(build_receipt(seen, diagnose(seen), RunMetadata(**facts)))
    )
    change(raw)
    return msgspec.convert(raw, Receipt)
