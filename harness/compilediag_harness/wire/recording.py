"""Recording of a run that a change can be proved against: what its outermost compiled calls return,
what it prints, saves and executes, and the same calls made again with other inputs at its end.

Its plan is a part of that of a trial (`RecordingPlan`); what was recorded comes back as events.
"""

from __future__ import annotations

import base64
import re
from dataclasses import dataclass

from compilediag_harness.wire.event import Event, Location, event
from compilediag_harness.wire.trials import SampledValue, WatchedLines

CALL_FORMAT = "<HIdddq"
"""One call in `CallsRecorded.calls`, for `struct`: callable and structure by their numbers, then
the fields of a `CallDigest`."""

NOT_COMPARED = "not compared: "
"""Begin of a structure of which nothing is compared, with a reason: while a CUDA graph is captured
nothing is read, and of too many callables or structures no more are told apart."""


def encode_calls(rows: bytes) -> str:
    """Encode calls as base64 with spaces, which every decoder skips: what is as long as a token may
    look like one, which is replaced in a journal."""
    return " ".join(re.findall(".{1,8}", base64.b64encode(rows).decode()))


@event
class RecordingStarted(Event):
    """Start of a recording in one process."""

    seed: int
    """Of `random`, of NumPy's global generator and of Python's hashes."""


@dataclass(frozen=True, slots=True)
class CallDigest:
    """Digest of what one call returned, folded over its tensors: each by its own scale, its norm
    together with a floor below which a difference is rounding. Elements far above a thousand fade
    out, and count by their logarithms."""

    total: float
    """Weighted total of the sums of elements, each divided by the scale of its tensor."""
    weighted: float
    """The same of the elements weighted by their position, and of their logarithms."""
    magnitude: float
    """Weighted total of the logarithms of the scales, and of what is large."""
    exact: int
    """Checksum of what must be equal bit for bit: integers, flags, and which elements are not
    finite."""


@event
class CallsRecorded(Event):
    """Outermost compiled calls of the process since the last such record, in their order."""

    functions: tuple[Location, ...]
    """Callables that are new since the last record; they are numbered on from 0. One that is here
    again is called in another thread too: its calls there have an order of their own."""
    structures: tuple[str, ...]
    """What was returned, without values: containers, dtypes, shapes; numbered in the same way.
    "opaque:Type" in one is a value that is not compared, `NOT_COMPARED` the begin of one of which
    nothing is; "raised Type" is a call that raised, with a digest of zeros."""
    calls: str
    """Of each call its `CALL_FORMAT`, one after the other, by `encode_calls`."""
    eager: tuple[int, ...] = ()
    """Those of them, from 0, in which no graph ran."""


@event
class GraphRun(Event):
    """One captured graph, and how often it was called until the process ended."""

    frame: Location
    operations: int
    opaque: tuple[str, ...]
    """Operations that hide what they compute: custom operators, functions allowed in graphs."""
    calls: int
    """-1 where they could not be counted."""


@event
class LinesPrinted(Event):
    """Whole lines that the program wrote to one of its streams, in their order."""

    stream: str
    """"stdout", "stderr", or "file " and a name: what is in a text file at the end, or was added
    to it. Each number in the name is a "#"."""
    lines: tuple[str, ...]
    """Without secrets."""
    digests: tuple[str, ...] = ()
    """Of each original line."""


@event
class ValuesSaved(Event):
    """Values that one call wrote into a file."""

    writer: str
    """"torch.save" or "safetensors"."""
    file: str
    """Name without its folder; empty for an object in memory."""
    values: tuple[SampledValue, ...]
    complete: bool = True


@event
class SourcesLoaded(Event):
    """Source files of the program whose text became code of this process, some of them; a file is
    there once for each text that did."""

    files: tuple[str, ...]
    """Absolute, links resolved."""
    digests: tuple[str, ...]
    """SHA-256 of the text of each that became code."""


@event
class LinesRun(Event):
    """The watched lines of a file that were executed."""

    file: str
    run: tuple[int, ...]
    """By the interpreter, or as a part of compiled code."""
    in_graph: tuple[int, ...]
    """While a frame was captured that has a graph."""
    problem: str | None = None
    """Why some that ran may be missing."""


@event
class CallersSeen(Event):
    """The program's own functions above the calls of a compiled callable, innermost first."""

    function: Location
    """The compiled callable."""
    callers: tuple[Location, ...]
    parameters: tuple[tuple[str, ...], ...]
    """Names of the parameters of each caller."""


@event
class CallVaried(Event):
    """A call that was made again after the program's end, as it was or with other inputs."""

    function: Location
    """The compiled callable, or the function of the program above it that was called instead."""
    call: str
    """Its kind: "training, gradients, 2 tensors"."""
    number: int
    """Which of the calls of this function it was, from 0."""
    variation: str
    """"as it was", "size 4 → 1", "gradients off", "scale = 2.5", "mask = None"; the same in both
    states of a program."""
    structure: str
    digest: tuple[CallDigest, ...]
    """One; none where the call raised."""
    raised: str | None
    """Type and first line of the exception."""
    compiles: int
    """Graphs that were captured for it."""
    given: tuple[str, ...] = ()
    """Of a call as it was: the path of each argument, ": " and its structure."""
    given_digests: tuple[CallDigest, ...] = ()
    step: int = 0
    """The step in which the program made it."""
    numbers: tuple[tuple[str, float | None], ...] = ()
    """Of the object that is called those that the call changed, as it left them; some may be
    tensors of one element. And a summary of each tensor in `written` and `replaced`, by name and
    shape. None: not finite."""
    memory: tuple[str, ...] = ()
    """What it returned that is written where the caller writes into something else, in words."""
    lines: tuple[WatchedLines, ...] = ()
    """Watched lines that ran in it, and had not before; of one that raised, those of the `raise`
    or `assert` of the program's own."""
    written: tuple[str, ...] = ()
    """Tensors of the object or the modules that are called which it wrote to in place, by name."""
    replaced: tuple[str, ...] = ()
    """Those in whose place it put others: what else refers to them is not changed."""
    is_new_size: bool = False
    """It has another size where all calls of the program had one."""
    draws: tuple[tuple[str, str], ...] = ()
    """Digests of the generators of random numbers behind it; before it they are seeded alike."""
    is_refused: bool = False
    """The program itself raised, by `raise` or `assert`, for a size above all that it had."""


EAGER, IN_DOUBLE, OWN_BACKEND = "eager", "eager, in float64", "own backend"
"""Variations of calls that were made again as they were, alone (`RecordingPlan.repeats`): their
results are read in float64, and none has gradients."""

ROUNDS = "; rounds"
"""In the structure of a call that was made again as it was: floating tensors went into it."""

GRAPH_USED_UP = "its graph is used up"
"""In the structure of a call that returned a loss whose backward pass it had run itself."""

BEYOND = "beyond the run: "
"""Begin of a variation that no call of the program may ever have."""

NO_TIME_LEFT = "for which no time was left"
"""In a sentence of what was left out: it begins with the number of calls."""


@event
class VaryingEnded(Event):
    """End of the varied calls of the process."""

    seconds: float
    left_out: tuple[str, ...]
    """What was not called again or not varied, and why."""
    interrupted: bool = False
    """Ctrl-C left out what was to come; the program itself was over."""
    timed_out: bool = False
    """The same for the time limit of the whole run."""
