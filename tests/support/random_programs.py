"""Small programs put together at random, whose recompiles and causes are known by construction.

    python tests/support/random_programs.py --programs 500 [--first 0] [--show 17]

A program reads some values (flags, counters, containers, sizes, modes...) in one or two compiled
frames; between its calls one or more of them change. What a cache entry accepts of each value is
known, so that a model of the cache says which calls recompile, which values no entry accepts, and
which are known alone and new together. torch's own count of recompiles must be the model's, else
the program is no witness; the causes and findings of compilediag must be the model's too.
"""

import argparse
import contextlib
import dataclasses
import importlib.util
import itertools
import random
import re
import sys
import tempfile
import textwrap
import time
import types
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch._dynamo import utils

import compilediag
from compilediag.diagnosis.causes.run_causes import COMBINATION
from compilediag.diagnosis.findings import Cause, CauseId
from compilediag.runs.watch import WatchResult

HOSTS = ("function", "module", "nested", "sequential", "break", "callee")
MOST_ENTRIES = 7
"""Of a frame, one below torch's recompile limit."""


@dataclasses.dataclass(frozen=True)
class Value:
    """A kind of value that is read in compiled code."""

    states: tuple[str, ...]
    read: str
    """Lines that read it, as `{v}`."""
    symbolic: frozenset[str] = frozenset()
    """Storages in which torch makes it symbolic at its second value."""
    container: bool = False


VALUES: Mapping[str, Value] = {
    "flag": Value(("False", "True"), "if {v}:\n    y = y + 1.0"),
    "string": Value(("'sum'", "'mean'", "'max'"), "y = y + (1.0 if {v} == 'mean' else 2.0)"),
    "enum": Value(("Way.A", "Way.B", "Way.C"), "if {v} is Way.B:\n    y = y - 1.0"),
    "pair": Value(("('a', 'b')", "('a', 'c')"), "y = y * (2.0 if {v}[1] == 'c' else 3.0)"),
    "counter": Value(
        ("31", "32", "33", "34"), "y = y + {v}", frozenset(("closure", "argument"))
    ),
    "factor": Value(
        ("0.5", "1.5", "2.5"), "y = y * {v}",
        frozenset(("closure", "argument", "global", "attribute", "hook")),
    ),
    "list": Value(("[]", "[1.0]", "[1.0, 2.0]"), "y = y + len({v})", container=True),
    "dict": Value(
        ("{}", "{'a': 1.0}", "{'a': 1.0, 'b': 2.0}"), "y = y + len({v})", container=True
    ),
    "walk": Value(
        ("{}", "{'a': 1.0}", "{'a': 1.0, 'bb': 2.0}", "{'b': 1.0}"),
        "y = y + sum(map(len, {v}))", container=True,
    ),
    "keys": Value(("{}", "{'a': 1.0}"), "if 'a' in {v}:\n    y = y + 1.0", container=True),
    "set": Value(("set()", "{'a'}", "{'a', 'b'}"), "y = y + len({v})", container=True),
    "optional": Value(("None", "torch.ones(1)"), "if {v} is not None:\n    y = y + {v}"),
}  # fmt: skip

STORAGES = {
    "function": ("closure", "global", "argument"),
    "module": ("attribute", "global", "argument"),
    "nested": ("attribute", "global", "argument", "hook"),
    "sequential": ("attribute", "global"),
    "break": ("closure", "global"),
    "callee": ("closure", "global"),
}
MODES = ("no_grad", "autocast", "inference", "training", "hooks")
TENSORS = ("rows", "columns", "pairs", "dtype", "gradient", "layout")

RULES = {
    "closure": ("CD101", "CD102"),
    "hook": ("CD101", "CD102"),
    "attribute": ("CD104", "CD104"),
    "global": ("CD109", "CD109"),
    "argument": ("CD107", "CD108"),
}
"""Of values and of containers."""


@dataclasses.dataclass(frozen=True)
class Piece:
    """One value of a program."""

    name: str
    kind: str
    storage: str
    """Or "mode" or "tensor"."""
    states: int
    frames: tuple[str, ...]
    """Those that read it."""
    gate: int | None = None
    """The piece, a flag, under which it is read."""

    @property
    def symbolic(self) -> bool:
        if self.storage == "tensor":
            return self.kind in ("rows", "columns", "pairs")
        return self.storage in VALUES[self.kind].symbolic if self.kind in VALUES else False

    def is_named_by(self, rule: str, variable: str, kind: str | None) -> bool:
        """Whether a cause of this code about this variable is this value."""
        if self.storage == "mode":
            expected = {"hooks": ("CD115", "")}.get(self.kind, ("CD111", _MODE_NAMES[self.kind]))
            return rule == expected[0] and expected[1] in (kind or "")
        if self.storage == "tensor":
            names = {"pairs": ("x", "weights")}.get(self.kind, ("x", "input"))
            if len(self.frames) > 1:
                names += ("y",)
            aspect = {"dtype": "dtype", "gradient": "requires_grad", "layout": "stride"}
            wanted = ("CD106", aspect[self.kind]) if self.kind in aspect else ("CD105", "size")
            return (rule, kind) == wanted and variable in names
        codes = {RULES[self.storage][VALUES[self.kind].container]}
        if self.kind == "optional" and self.storage in ("attribute", "argument"):
            codes = {"CD103" if self.storage == "attribute" else "CD114"}
        spelled = {
            "attribute": (f"self.{self.name}", f"inner.{self.name}", f"Sequential[1].{self.name}")
        }.get(self.storage, (self.name,))
        if self.storage == "global":  # read in another module, it is spelled with its own
            spelled += tuple(f"program_{number}.{self.name}" for number in _numbers(variable))
        bare = re.sub(r"\[1\]$", "", variable) if self.kind == "pair" else variable
        return rule in codes and bare in spelled


def _numbers(variable: str) -> list[str]:
    return re.findall(r"^program_(\d+)[.]", variable)


_MODE_NAMES = {
    "no_grad": "grad_mode",
    "autocast": "autocast",
    "inference": "inference_mode",
    "training": "train_eval",
    "hooks": "",
}


class Expected(NamedTuple):
    """A recompile that the model of the cache foresees."""

    frame: str
    false: tuple[frozenset[int], ...]
    """Pieces that each cache entry does not accept."""
    novel: frozenset[int]
    """Pieces that are read now, and whose value no entry accepts that reads them."""
    unsure: frozenset[int]
    """Refused pieces of which the construction does not say whether they are new: no hooks, which
    torch does not guard."""

    @property
    def nearest(self) -> tuple[frozenset[int], ...]:
        """What may be told: the entries with the fewest, of those that refuse a new value."""
        entries = [each for each in self.false if each & (self.novel | self.unsure)]
        least = min(map(len, entries), default=0)
        return tuple(each for each in entries if len(each) == least)

    @property
    def combinations(self) -> tuple[frozenset[int], ...]:
        """The smallest sets of values that no entry accepts together, of values that are known."""
        pieces = sorted(frozenset.union(*self.false))
        for size in range(2, len(pieces) + 1):
            found = [
                frozenset(chosen)
                for chosen in itertools.combinations(pieces, size)
                if all(each & set(chosen) for each in self.false)
            ]
            if found:
                return tuple(found)
        return ()


@dataclasses.dataclass(frozen=True)
class Program:
    """A program and its calls."""

    number: int
    host: str
    pieces: tuple[Piece, ...]
    calls: tuple[tuple[int, ...], ...]
    """The state of each piece at each call."""

    @property
    def frames(self) -> tuple[str, ...]:
        return _frames_of(self.host)

    @property
    def expected(self) -> tuple[Expected, ...]:
        """Every recompile, in order."""
        cache = {frame: Cache(frame, self.pieces) for frame in self.frames}
        found: list[Expected] = []
        for call in self.calls:
            for frame in self.frames:
                missed = cache[frame].called(call)
                found += [missed] if missed is not None else []
        return tuple(found)


class Cache:
    """The cache entries of one frame, as far as the pieces decide them."""

    def __init__(self, frame: str, pieces: Sequence[Piece]) -> None:
        self._frame = frame
        self._has_hooks = any(piece.storage == "hook" for piece in pieces)
        self._hooks = {at for at, piece in enumerate(pieces) if piece.kind == "hooks"}
        self._pieces = tuple(
            (at, piece) for at, piece in enumerate(pieces) if frame in piece.frames
        )
        self._values: dict[int, set[int]] = {at: set() for at, _ in self._pieces}
        """States that were compiled for, of the pieces that were read."""
        self.entries: list[dict[int, int | None]] = []
        """State by piece; None accepts every state."""

    def called(self, call: tuple[int, ...]) -> Expected | None:
        """What each entry does not accept; None without a recompile."""
        false = tuple(
            frozenset(at for at, held in entry.items() if held not in (None, call[at]))
            for entry in self.entries
        )
        if false and not all(false):
            return None
        accepted = {
            at for entry in self.entries for at, held in entry.items() if held in (None, call[at])
        }
        entry: dict[int, int | None] = {}
        for at, piece in self._pieces:
            if piece.gate is not None and not call[piece.gate]:
                continue
            if piece.kind == "hooks" and not call[at] and not self._has_hooks:
                continue  # torch guards the hooks of a module that has some
            self._values[at].add(call[at])
            many = piece.symbolic and len(self._values[at]) > 1
            entry[at] = None if many else call[at]
        self.entries.append(entry)
        refused = frozenset[int]().union(*false)
        novel = refused & set(entry) - accepted
        unsure = refused & self._hooks - set(entry)
        return Expected(self._frame, false, novel, unsure) if false else None


def _frames_of(host: str) -> tuple[str, ...]:
    return ("before", "after") if host in ("break", "callee") else ("main",)


def program_of(number: int) -> Program:
    """The program of this number, always the same."""
    rng = random.Random(number)
    host = HOSTS[number % len(HOSTS)]
    pieces: list[Piece] = []
    frames = _frames_of(host)
    taken: set[str] = set()
    for name in ("alpha", "beta", "gamma", "delta")[: rng.choice((1, 2, 2, 3, 3, 4))]:
        sort = rng.random()
        if sort < 0.2:
            kind = rng.choice([each for each in MODES if _has_mode(host, each)])
            one_of = "gradients" if kind in ("no_grad", "inference") else kind
            piece = Piece(kind, kind, "mode", 2, frames)
        elif sort < 0.45:
            kind = rng.choice([each for each in TENSORS if (host, each) != ("sequential", "pairs")])
            one_of = "gradients" if kind == "gradient" and len(frames) > 1 else kind
            one_of = "sizes" if kind in ("rows", "columns", "pairs") else one_of
            states = 4 if kind in ("rows", "columns", "pairs") else 2
            piece = Piece(kind, kind, "tensor", states, frames)
        else:
            kind, one_of = rng.choice(list(VALUES)), name
            storage = rng.choice(STORAGES[host])
            gates = [
                at for at, each in enumerate(pieces)
                if each.kind == "flag" and each.storage != "hook" and storage != "hook"
            ]  # fmt: skip
            gate = rng.choice(gates) if gates and rng.random() < 0.3 else None
            where = (rng.choice(frames),) if gate is None else pieces[gate].frames
            piece = Piece(name, kind, storage, len(VALUES[kind].states), where, gate)
        if one_of not in taken:
            taken.add(one_of)
            pieces.append(piece)
    return Program(number, host, tuple(pieces), _calls(rng, pieces, frames))


def _has_mode(host: str, mode: str) -> bool:
    if mode == "hooks":
        return host == "nested"
    return mode != "training" or host in ("module", "nested", "sequential")


def _calls(
    rng: random.Random, pieces: Sequence[Piece], frames: Iterable[str]
) -> tuple[tuple[int, ...], ...]:
    """Random changes, until a frame is full; some calls change nothing."""
    caches = [Cache(frame, pieces) for frame in frames]
    state = [0] * len(pieces)
    calls: list[tuple[int, ...]] = []
    for _ in range(rng.randint(5, 10)):
        calls.append(tuple(state))
        for cache in caches:
            cache.called(tuple(state))
        if any(len(cache.entries) >= MOST_ENTRIES for cache in caches):
            break
        for at in rng.sample(
            range(len(pieces)), min(len(pieces), rng.choice((0, 1, 1, 1, 2, 2, 3)))
        ):
            state[at] = rng.randrange(pieces[at].states)
    return tuple(calls)


# --- as source ------------------------------------------------------------------------------------


_READING_CLASS = """class {name}(torch.nn.Module):
    def __init__(self):
        super().__init__()
        $fields
    def forward(self, x$given):
        $first
        $main
        return y
"""
_FUNCTION = "MODEL, COMPILED = None, torch.compile(forward, backend='eager')"
_COMPILED_MODEL = "COMPILED = torch.compile(MODEL, backend='eager')"
_TEXTS = {
    "function": f"""def forward(x$given):
    $first
    $main
    return y
{_FUNCTION}""",
    "module": f"""{_READING_CLASS.format(name="Model")}MODEL = HOLDER = Model()
{_COMPILED_MODEL}""",
    "nested": f"""{_READING_CLASS.format(name="Inner")}class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = Inner()
    def forward(self, x$given):
        return self.inner(x$given) + 1.0
MODEL = Model()
HOLDER = MODEL.inner
$hooks
{_COMPILED_MODEL}""",
    "sequential": f"""class First(torch.nn.Module):
    def __init__(self):
        super().__init__()
    def forward(self, x):
        return x + 1.0
{_READING_CLASS.format(name="Second")}MODEL = torch.nn.Sequential(First(), Second())
HOLDER = MODEL[1]
{_COMPILED_MODEL}""",
    "break": f"""def forward(x$given):
    $first
    $before
    torch._dynamo.graph_break()
    y = y + 1.0
    $after
    return y
{_FUNCTION}""",
    "callee": f"""def finish(y):
    y = y + 1.0
    $after
    return y
def forward(x$given):
    $first
    $before
    torch._dynamo.graph_break()
    return finish(y)
{_FUNCTION}""",
}
"""Of each host; a line that is a name is that many lines."""
_HEAD = """
import enum
import torch

class Way(enum.Enum):
    A = 1
    B = 2
    C = 3
"""


def source_of(program: Program) -> str:
    """The program as a module: what it compiled, the setter of each value, and `arguments`."""
    of_storage = {
        storage: [piece for piece in program.pieces if piece.storage == storage]
        for storage in RULES
    }
    given = [piece.name for piece in of_storage["argument"]]
    first, hooks = ["y = x * 2.0"], []
    if any(piece.kind == "pairs" for piece in program.pieces):
        given.insert(0, "weights")
        first.append("y = y + weights[:, None]")
    for piece in of_storage["hook"]:
        body = [*_lines_of(piece), "return y"]
        hooks += [f"def hook_{piece.name}(module, args, y):", *_indented(body)]
        hooks.append(f"HOLDER.register_forward_hook(hook_{piece.name})")
    parts = {
        "$fields": [f"self.{each.name} = {_first_state(each)}" for each in of_storage["attribute"]],
        "$first": first,
        "$hooks": hooks,
        **{f"${frame}": _read(program, frame, None) for frame in program.frames},
    }
    made: list[str] = []
    for line in (
        _TEXTS[program.host].replace("$given", "".join(f", {n}" for n in given)).split("\n")
    ):
        name = line.strip()
        made += [line.replace(name, each) for each in parts[name]] if name in parts else [line]
    own: list[str] = []
    setters: list[str] = []
    for piece in program.pieces:
        if piece.storage in ("closure", "hook"):
            own += [f"{piece.name} = {_first_state(piece)}"]
            own += _setter(piece, "nonlocal", piece.name)
        elif piece.storage == "attribute":
            own += _setter(piece, None, f"HOLDER.{piece.name}")
        else:
            continue
        setters.append(f"{piece.name!r}: set_{piece.name}")
    text = [_HEAD.lstrip("\n")]
    text += [f"{piece.name} = {_first_state(piece)}" for piece in of_storage["global"]]
    end = f"return MODEL, COMPILED, {{{', '.join(setters)}}}"
    text += ["def make():", *_indented([*own, *made, end])]
    text += ["MODEL, COMPILED, SETTERS = make()"]
    for piece in of_storage["global"]:
        text += _setter(piece, "global", piece.name)
        text += [f"SETTERS['{piece.name}'] = set_{piece.name}"]
    text += ["def arguments(states):", "    return ["]
    for piece in of_storage["argument"]:
        text += [f"        {_choice(piece, f'states[{piece.name!r}]')},"]
    return "\n".join([*text, "    ]", ""])


def _first_state(piece: Piece) -> str:
    return VALUES[piece.kind].states[0]


def _choice(piece: Piece, state: str) -> str:
    """The value of a state: a new object each time."""
    states = ", ".join(f"lambda: {each}" for each in VALUES[piece.kind].states)
    return f"[{states}][{state}]()"


def _setter(piece: Piece, scope: str | None, target: str) -> list[str]:
    declared = [f"    {scope} {piece.name}"] if scope is not None else []
    head = f"def set_{piece.name}(state):"
    return [head, *declared, f"    {target} = {_choice(piece, 'state')}"]


def _indented(lines: Iterable[str]) -> list[str]:
    return ["    " + line if line else "" for line in lines]


def _lines_of(piece: Piece) -> list[str]:
    """The lines that read a value."""
    name = f"self.{piece.name}" if piece.storage == "attribute" else piece.name
    return VALUES[piece.kind].read.replace("{v}", name).split("\n")


def _read(program: Program, frame: str, gate: int | None) -> list[str]:
    """The lines of a frame that read its pieces, each with those below it."""
    lines: list[str] = []
    for at, piece in enumerate(program.pieces):
        if frame not in piece.frames or piece.gate != gate or piece.storage == "hook":
            continue
        if piece.kind == "training":
            lines += ["if self.training:", "    y = y + 1.0"]
        if piece.kind in VALUES:
            lines += [*_lines_of(piece), *_indented(_read(program, frame, at))]
    return lines


# --- run and judged -------------------------------------------------------------------------------


def run(program: Program, folder: Path) -> tuple[WatchResult, list[str]]:
    """What compilediag saw, and the frames of the recompiles that torch counted."""
    path = folder / f"program_{program.number}.py"
    path.write_text(source_of(program))
    spec = importlib.util.spec_from_file_location(path.stem, path)
    module = importlib.util.module_from_spec(spec)
    torch._dynamo.reset()
    utils.clear_compilation_metrics()
    sys.modules[path.stem] = module
    spec.loader.exec_module(module)
    with compilediag.watch(user_roots=(str(folder),)) as seen:
        before = (0,) * len(program.pieces)
        for call in program.calls:
            _call(program, module, before, call)
            before = call
    again = [row for row in utils.get_compilation_metrics() if row.recompile_reason]
    return seen, [_frame_of(program, str(row.co_name)) for row in again]


def _frame_of(program: Program, code: str) -> str:
    resumed = code.startswith("torch_dynamo_resume_in_")
    return program.frames[-1] if resumed else program.frames[0]


def _call(
    program: Program, module: types.ModuleType, before: Sequence[int], call: Sequence[int]
) -> None:
    states = {piece.name: state for piece, state in zip(program.pieces, call, strict=True)}
    for at, piece in enumerate(program.pieces):
        if before[at] == call[at]:
            continue
        if piece.name in module.SETTERS:
            module.SETTERS[piece.name](call[at])
        elif piece.kind == "training":
            module.MODEL.train(not call[at])
        elif piece.kind == "hooks":
            _set_hooks(module, call[at])
    x = _batch(states)
    given = [torch.ones(len(x))] if "pairs" in states else []
    with contextlib.ExitStack() as modes:
        for kind, mode in _CONTEXTS.items():
            if states.get(kind):
                modes.enter_context(mode())
        module.COMPILED(x, *given, *module.arguments(states))


_CONTEXTS: dict[str, Any] = {
    "no_grad": torch.no_grad,
    "inference": torch.inference_mode,
    "autocast": lambda: torch.autocast("cpu", torch.bfloat16),
}


def _set_hooks(module: types.ModuleType, on: int) -> None:
    if on:
        module.handle = module.MODEL.inner.register_forward_hook(lambda _, __, y: y + 1.0)
    else:
        module.handle.remove()


def _batch(states: Mapping[str, int]) -> torch.Tensor:
    rows = 16 + states.get("rows", states.get("pairs", 0))
    columns = 4 + states.get("columns", 0)
    dtype = torch.float64 if states.get("dtype") else torch.float32
    x = torch.ones(rows, columns, dtype=dtype)
    if states.get("layout"):
        x = torch.ones(columns, rows, dtype=dtype).t()
    return x.requires_grad_(bool(states.get("gradient")))


class Judged(NamedTuple):
    """Where causes and findings differ from the construction."""

    problems: tuple[str, ...]
    recompiles: int = 0
    causes: int = 0
    """That each recompile has by construction."""
    named: int = 0
    invented: int = 0
    firsts: int = 0
    right_firsts: int = 0
    true_findings: int = 0
    findings: int = 0


def judged(program: Program, folder: Path) -> Judged:
    """Runs a program and compares."""
    seen, frames = run(program, folder)
    expected = program.expected
    if frames != [item.frame for item in expected]:
        model = [item.frame for item in expected]
        return Judged((f"no witness: torch recompiled {frames}, the model {model}",))
    counted = len(frames)
    timeline = seen.timeline
    recompiles = timeline.counted_recompiles
    if len(recompiles) != counted or seen.receipt.compile.recompiles != counted:
        return Judged((f"{len(recompiles)} recompiles seen, torch has {counted}",), counted)
    tally = Judged((), counted)
    wanted: set[frozenset[int]] = set()
    unsure: set[int] = set()
    for item, truth in zip(recompiles, expected, strict=True):
        causes = seen.diagnosis.causes.get_causes(item)
        told = [_told(program, cause) for cause in causes]
        one = _judge_recompile(truth, told)
        if one.problems:
            said = [(each.rule, each.kind, each.variable, each.value) for each in causes]
            problem = (
                f"{item.compile_id}: {', '.join(one.problems)}; {_shown(truth)}, causes {said}"
            )
            one = one._replace(problems=(problem,))
        tally = _sum(tally, one)
        unsure |= truth.unsure
        if truth.novel:
            wanted |= {frozenset((at,)) for at in truth.novel}
        elif told and told[0] is not None and told[0] in truth.combinations:
            wanted.add(told[0])
    return _sum(tally, _judge_findings(program, seen, wanted, {frozenset((at,)) for at in unsure}))


def _told(program: Program, cause: Cause) -> frozenset[int] | None:
    """The pieces a cause is about; None for what is no piece of the program."""
    parts = cause.parts or (cause,)
    found = [_piece_of(program, part.rule, part.variable, part.kind) for part in parts]
    return None if None in found else frozenset(at for at in found if at is not None)


def _piece_of(program: Program, rule: str, variable: str, kind: str | None) -> int | None:
    pieces = enumerate(program.pieces)
    return next((at for at, each in pieces if each.is_named_by(rule, variable, kind)), None)


_CODES = tuple(f"CD{number}" for number in range(101, 119))


def _judge_recompile(truth: Expected, told: Sequence[frozenset[int] | None]) -> Judged:
    problems: list[str] = []
    named = {at for each in told if each is not None for at in each}
    allowed = set(truth.novel).union(*truth.nearest)
    if not truth.novel and told and told[0] is not None and told[0] <= truth.unsure:
        return Judged((), 0, 1, 1, sum(each is None for each in told), 1, 1)
    if truth.novel:
        missing = truth.novel - named
        invented = sum(each is None or not each <= allowed for each in told)
        new = truth.novel | truth.unsure
        first = bool(told) and told[0] is not None and told[0] <= new
        count = len(truth.novel)
    else:
        right = bool(told) and told[0] in truth.combinations
        missing = frozenset() if right else truth.combinations[0]
        invented = sum(each not in truth.combinations for each in told)
        first, count = right, 1
        missing = frozenset(sorted(missing)[:1])
    problems += [f"not named: {sorted(missing)}"] if missing else []
    problems += [f"{invented} invented"] if invented else []
    problems += [] if first else ["another cause first"]
    return Judged(
        tuple(problems), 0, count, count - len(missing), invented, 1, int(first)
    )  # fmt: skip


def _judge_findings(
    program: Program, seen: WatchResult, wanted: set[frozenset[int]], unsure: set[frozenset[int]]
) -> Judged:
    """Each cause that was new once has a finding of its own, and there are no others."""
    problems: list[str] = []
    found = [item for item in seen.findings if item.rule in (*_CODES, COMBINATION)]
    ids = {part for item in found for part in item.about if isinstance(part, CauseId)}
    about = {
        _told(program, item)
        for again in seen.timeline.counted_recompiles
        for item in seen.diagnosis.causes.get_causes(again)
        if item.id in ids
    }
    problems += [f"no finding about {sorted(each)}" for each in wanted - about]
    problems += [
        f"a finding about {each and sorted(each)}" for each in about if each not in wanted | unsure
    ]
    if problems:
        problems.append(f"findings {[(f.rule, f.variable) for f in found]}")
    return Judged(tuple(problems), true_findings=len(wanted), findings=len(found))


def _sum(one: Judged, other: Judged) -> Judged:
    return Judged(
        one.problems + other.problems, *(a + b for a, b in zip(one[1:], other[1:], strict=True))
    )


def shown(program: Program) -> str:
    """A program for a person: its pieces, calls and source."""
    lines = [f"program {program.number}: {program.host}"]
    lines += [f"  {at} {piece}" for at, piece in enumerate(program.pieces)]
    lines += [f"  call {call}" for call in program.calls]
    lines += [f"  recompile of {_shown(item)}" for item in program.expected]
    return "\n".join([*lines, textwrap.indent(source_of(program), "    ")])


def _shown(item: Expected) -> str:
    return f"{item.frame}: refused {list(map(sorted, item.false))}, new {sorted(item.novel)}"


def campaign(numbers: Iterable[int]) -> Iterator[tuple[Program, Judged]]:
    """Runs and judges the programs of these numbers."""
    with tempfile.TemporaryDirectory() as folder:
        for number in numbers:
            program = program_of(number)
            yield program, judged(program, Path(folder))


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--programs", type=int, default=500)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--show", type=int)
    options = parser.parse_args()
    torch.set_num_threads(1)
    numbers = range(options.first, options.first + options.programs)
    if options.show is not None:
        numbers = (options.show,)
        print(shown(program_of(options.show)))
    began, total, wrong = time.monotonic(), Judged(()), 0
    for program, found in campaign(numbers):
        total = _sum(total, found)
        wrong += bool(found.problems)
        for problem in found.problems:
            made_of = ", ".join(f"{piece.storage} {piece.kind}" for piece in program.pieces)
            print(f"{program.number} ({program.host}: {made_of}): {problem}", flush=True)
    print(
        f"{len(list(numbers))} programs, {wrong} with a difference: {total.recompiles} recompiles, "
        f"{total.named} of {total.causes} causes named, {total.invented} invented, "
        f"{total.right_firsts} of {total.firsts} first causes right, "
        f"{total.findings} findings for {total.true_findings} causes "
        f"({time.monotonic() - began:.0f} s)"
    )
    sys.exit(bool(wrong))


if __name__ == "__main__":
    main()
