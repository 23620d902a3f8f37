"""Callables put together at random from pieces whose answer to padding is known, and what
`FixedShape.check` says of them.

    python tests/support/padding_pieces.py --cases 10000 [--first 0]

Each piece is harmless, harmful or open (no run can decide) with the padding in use, by
construction; a callable is what its worst piece is. Later pieces never hide what earlier ones did:
rows only ever get something added. What is judged safe is also called, with other batches.
"""

import argparse
import collections
import dataclasses
import functools
import itertools
import random
import time
import types
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import nn
from torch.nn import functional as F
from torch.utils import _pytree

from compilediag_harness.shapes.dims import ShapeUnusable
from compilediag_harness.shapes.fixed_shape import FixedShape
from compilediag_harness.shapes.padding_report import PaddingReport

ROWS, WIDTH, IDS = 11, 6, 5
BUCKETS = [8, 16]
HARMLESS, HARMFUL, OPEN = range(3)

seen: list[Any] = []
totals = torch.zeros(WIDTH)
counted = {"calls": 0, "rows": 0}


class Kept:
    """An object that a callable writes to."""

    total: Any = None
    latest: Any = None


kept = Kept()


@dataclasses.dataclass(frozen=True)
class Padding:
    """The padding in use."""

    rows: Any
    ids: Any
    mask: bool

    @property
    def repeats(self) -> bool:
        return self.rows == "repeat" and self.ids == "repeat"


@dataclasses.dataclass
class Flow:
    """One call, as pieces see it."""

    x: Any
    ids: Any
    real: Any
    h: Any
    more: list[Any]
    model: Any


Step = Callable[[Flow], None]


@dataclasses.dataclass(frozen=True)
class Piece:
    """A step of a callable, what it is, and what the callable must have for it."""

    name: str
    make: Callable[[random.Random], Step]
    truth: Callable[[Padding], int | None]
    """None: not with this padding."""


PIECES: list[Piece] = []


def always(truth: int) -> Callable[[Padding], int]:
    return lambda _: truth


def unless_repeated(padding: Padding) -> int:
    """Harmful but for the last row again, which a maximum does not see."""
    return HARMLESS if padding.repeats else HARMFUL


def one_of(rng: random.Random, *ways: Callable[[Any], Any]) -> Callable[[Any], Any]:
    return rng.choice(ways)


def adding(how: Callable[[Any], Any], of: str = "h") -> Step:
    """A step that adds what is made of rows, ids or what there is so far."""

    def step(flow: Flow) -> None:
        flow.h = flow.h + how(getattr(flow, of))

    return step


def giving(how: Callable[[Flow], Any]) -> Step:
    """A step with an output of its own."""
    return lambda flow: flow.more.append(how(flow))


def piece(truth: int | Callable[[Padding], int | None]) -> Callable[[Any], Any]:
    """A step without anything to be made first."""

    def add(step: Step) -> Step:
        which = always(truth) if isinstance(truth, int) else truth
        PIECES.append(Piece(step.__name__, lambda _: step, which))
        return step

    return add


def made(truth: int | Callable[[Padding], int | None]) -> Callable[[Any], Any]:
    """A step that is made with the random numbers of the case."""

    def add(make: Callable[[random.Random], Step]) -> Any:
        which = always(truth) if isinstance(truth, int) else truth
        PIECES.append(Piece(make.__name__, make, which))
        return make

    return add


# --- rows on their own ------------------------------------------------------------------------


@made(HARMLESS)
def linear(_: random.Random) -> Step:
    return adding(nn.Linear(WIDTH, WIDTH))


@made(HARMLESS)
def normalised(rng: random.Random) -> Step:
    layer = rng.choice([nn.LayerNorm(WIDTH), nn.BatchNorm1d(WIDTH).eval(), nn.Dropout().eval()])
    return adding(layer)


@made(HARMLESS)
def looked_up(_: random.Random) -> Step:
    return adding(nn.Embedding(IDS, WIDTH), "ids")


@made(HARMLESS)
def elementwise(rng: random.Random) -> Step:
    how = one_of(rng, torch.relu, torch.tanh, torch.sin, torch.sigmoid, torch.abs)
    return adding(how)


@made(HARMLESS)
def within_rows(rng: random.Random) -> Step:
    how = one_of(
        rng,
        lambda h: h.softmax(-1),
        lambda h: h.sort(-1).values,
        lambda h: h.cumsum(-1),
        lambda h: h.mean(-1, keepdim=True),
        lambda h: F.one_hot(h.argmax(-1), WIDTH).float(),
        lambda h: F.conv1d(h[:, None], torch.ones(1, 1, 3), padding=1)[:, 0],
        lambda h: F.scaled_dot_product_attention(h[:, :, None], h[:, :, None], h[:, :, None])[
            :, :, 0
        ],
    )
    return adding(how)


@made(HARMLESS)
def other_memory(rng: random.Random) -> Step:
    how = one_of(
        rng,
        lambda h: h.t().contiguous().t(),
        lambda h: h.double().float(),
        lambda h: h.unsqueeze(1).expand(-1, 3, -1)[:, 1],
        lambda h: h.clone().add_(1.0),
        lambda h: torch.cat((h[:, ::2], h[:, 1::2]), 1),
    )
    return adding(how)


@piece(HARMLESS)
def rows_before(flow: Flow) -> None:
    flow.h = flow.h + 0.1 * flow.h.cumsum(0)


@piece(lambda padding: HARMLESS if padding.mask else None)
def masked_mean(flow: Flow) -> None:
    chosen = torch.where(flow.real[:, None], flow.h, 0.0)
    flow.h = flow.h + chosen.sum(0) / flow.real.sum()


@piece(lambda padding: HARMLESS if padding.mask else None)
def masked_attention(flow: Flow) -> None:
    score = (flow.h @ flow.h.T).masked_fill(~flow.real, -torch.inf)
    flow.h = flow.h + score.softmax(-1) @ torch.where(flow.real[:, None], flow.h, 0.0)


# --- rows that meet ---------------------------------------------------------------------------


@made(HARMFUL)
def over_rows(rng: random.Random) -> Step:
    how = one_of(
        rng,
        lambda h: h.mean(0),
        lambda h: h.sum(0),
        lambda h: h.std(0),
        lambda h: h.softmax(0),
        lambda h: h.flip(0),
        lambda h: h.sort(0).values,
        lambda h: h.roll(-1, 0),
        lambda h: (h @ h.T).softmax(-1) @ h,
        lambda h: h - h.logsumexp(0),
        lambda h: h.norm(dim=0),
        lambda h: h.T.cov()[:1, :],
    )
    return adding(how)


@made(HARMFUL)
def by_size(rng: random.Random) -> Step:
    how = one_of(
        rng,
        lambda h: h / h.shape[0],
        lambda h: torch.arange(h.shape[0]).flip(0)[:, None].float(),
        lambda h: torch.linspace(0, 1, h.shape[0])[:, None],
        lambda h: torch.full_like(h, float(len(h))),
    )
    return adding(how)


@made(HARMFUL)
def batch_norm_in_training(_: random.Random) -> Step:
    return adding(nn.BatchNorm1d(WIDTH).train())


@made(unless_repeated)
def extreme_of_rows(rng: random.Random) -> Step:
    how = one_of(
        rng,
        lambda x: x.amax(0),
        lambda x: x.amin(0),
        lambda x: x[x[:, 0].argmax()],
        lambda x: x[-1],
        lambda x: x.roll(1, 0),
        lambda x: x.cummax(0).values.amax(0),
    )
    return adding(how, "x")


def _beyond(padding: Padding) -> int | None:
    """Of a limit of 1.1: the padding is beyond it, or is the last row; else it is never seen."""
    return HARMLESS if padding.repeats else HARMFUL if padding.rows > 1.1 else None


@made(_beyond)
def any_or_all(rng: random.Random) -> Step:
    how = one_of(rng, lambda x: (x < 1.1).all(0).float(), lambda x: (x > 1.1).any().float())
    return adding(how, "x")


@piece(lambda padding: HARMLESS if padding.ids == "repeat" else HARMFUL)
def highest_id(flow: Flow) -> None:
    # The padding of ids is the highest there can be.
    flow.h = flow.h + float(F.one_hot(flow.ids, int(flow.ids.max()) + 1).shape[1])


@made(lambda padding: HARMLESS if padding.rows == "repeat" else HARMFUL)
def sentinel(_: random.Random) -> Step:
    def step(flow: Flow) -> None:
        padded_with = flow.model.padding.rows
        value = -100.0 if padded_with == "repeat" else padded_with
        flow.h = flow.h + (flow.x == value).all(1).any().float()

    return step


@piece(HARMFUL)
def counted_above(flow: Flow) -> None:
    padded_with = flow.model.padding.rows
    limit = 0.2 if padded_with == "repeat" else padded_with - 0.5
    flow.h = flow.h + (flow.x[:, 0] > limit).sum()


@piece(HARMFUL)
def counted_ids(flow: Flow) -> None:
    # Of values that the example has: what it has not, no check can try.
    repeats = flow.model.padding.ids == "repeat"
    flow.h = flow.h + (flow.ids < 2 if repeats else flow.ids > 2).sum()


# --- left behind ------------------------------------------------------------------------------


@made(HARMLESS)
def counted_calls(rng: random.Random) -> Step:
    local = {"calls": 0}

    def step(flow: Flow) -> None:
        way = rng_way
        if way == 0:
            flow.model.calls = getattr(flow.model, "calls", 0) + 1
        elif way == 1:
            counted["calls"] += 1
        elif way == 2:
            local["calls"] += 1
        else:
            seen.append("called")

    rng_way = rng.randrange(4)
    return step


@made(HARMLESS)
def set_up_once(_: random.Random) -> Step:
    def step(flow: Flow) -> None:
        if not hasattr(flow.model, "scale"):
            flow.model.scale = torch.linspace(1.0, 2.0, WIDTH)
        flow.h = flow.h + flow.model.scale

    return step


@made(HARMFUL)
def left_behind(rng: random.Random) -> Step:
    """A trace of the padding, in one of the places where programs keep things."""
    what = one_of(
        rng,
        lambda f: f.h.detach().mean(),
        lambda f: f.h.detach(),
        lambda f: float(f.h.detach().sum()),
        lambda f: f.x.shape[0],
    )
    local: dict[str, Any] = {}
    closed = torch.zeros(())
    array = np.zeros(3)
    queue: collections.deque[Any] = collections.deque(maxlen=4)

    def into_default(value: Any, into: list[Any] = []) -> None:  # noqa: B006 - that is the piece
        into.append(value)

    def nonlocal_(value: Any) -> None:
        nonlocal latest
        latest = value

    latest: Any = None
    places: list[Callable[[Flow, Any], Any]] = [
        lambda f, v: setattr(f.model, "aux_loss", v),
        lambda f, v: f.model.__dict__.setdefault("losses", []).append(v),
        lambda f, v: f.model.history.append(v),
        lambda f, v: f.model.metrics.update(loss=v),
        lambda f, v: setattr(f.model.inner, "aux_loss", v),
        lambda f, v: seen.append(v),
        lambda f, v: counted.update(rows=v),
        lambda f, v: setattr(kept, "latest", v),
        lambda f, v: setattr(Kept, "total", v),
        lambda f, v: totals.add_(f.x.shape[0]),
        lambda f, v: closed.add_(f.x.shape[0]),
        lambda f, v: array.__setitem__(0, f.x.shape[0]),
        lambda f, v: local.update(last=v),
        lambda f, v: queue.append(v),
        lambda f, v: into_default(v),
        lambda f, v: nonlocal_(v),
        lambda f, v: setattr(into_default, "latest", v),
        lambda f, v: f.model.statistic.copy_(f.h.detach().sum()),
        lambda f, v: f.model.__setattr__("statistic", f.h.detach().mean()),
        lambda f, v: _add(v),
        lambda f, v: f.model.generator.manual_seed(f.x.shape[0]),
    ]
    put = rng.choice(places)

    def step(flow: Flow) -> None:
        put(flow, what(flow))

    return step


def _add(value: Any) -> None:
    global latest
    latest = value


latest: Any = None


@piece(HARMFUL)
def written_to(flow: Flow) -> None:
    flow.x.mul_(0.5)


# --- open -------------------------------------------------------------------------------------


@made(OPEN)
def drawn(rng: random.Random) -> Step:
    how = one_of(
        rng,
        lambda h: F.dropout(h, 0.5),
        torch.rand_like,
        lambda h: h * random.random(),
        lambda h: h * float(np.random.rand()),  # noqa: NPY002 - of the global generator
    )
    return adding(how)


@made(OPEN)
def hidden_state(rng: random.Random) -> Step:
    """What no program can read without changing it."""
    hidden: Any = rng.choice([(i for i in range(10**9)), iter([1] * 10**4), itertools.count()])

    def step(flow: Flow) -> None:
        next(hidden)

    return step


# --- outputs ----------------------------------------------------------------------------------


@made(HARMLESS)
def more_outputs(rng: random.Random) -> Step:
    how = one_of(
        rng,
        lambda f: f.h[:, ::2],
        lambda f: f.h.T,
        lambda f: f.h[:, 0],
        lambda f: f.x,
        lambda f: f.ids.view(-1, 1),
        lambda f: torch.eye(16)[:, :3],
        lambda f: torch.ones(8),
        lambda f: f.x @ f.x.T,
        lambda f: (f.h > 0, "text", 3, None, torch.float32),
        lambda f: f.h.unsqueeze(1).expand(-1, 2, -1),
        lambda f: f.h.sort(-1),
        lambda f: torch.zeros(()),
        lambda f: {1, "two"},
    )
    return giving(how)


@made(HARMFUL)
def reduced_output(rng: random.Random) -> Step:
    how = one_of(
        rng,
        lambda f: f.h.mean(),
        lambda f: f.h.sum(0),
        lambda f: F.cross_entropy(f.h, f.ids),
        lambda f: (f.h.detach() > 0).sum(),
        lambda f: f.h.detach().mean().item(),
        lambda f: {"rows": f.x.shape[0]},
        lambda f: f.h[f.x[:, 0] > 0.0],
    )
    return giving(how)


class Opaque:
    def __init__(self, rows: Any) -> None:
        self.rows = rows


@made(OPEN)
def opaque_output(rng: random.Random) -> Step:
    how = one_of(
        rng,
        Opaque,
        lambda h: torch.distributions.Normal(h, torch.ones_like(h)),
        lambda h: torch.distributions.Categorical(logits=h),
        lambda h: {h},
        lambda h: frozenset((h, 1)),
        lambda h: (row for row in h),
        iter,
        lambda h: lambda: h,
        lambda h: functools.partial(torch.add, h),
        lambda h: h.detach().numpy(),
        lambda h: h.add,
        lambda h: h.detach().to_sparse(),
        lambda h: collections.UserList([h]),
        lambda h: [{"deep": (Opaque(h),)}],
    )
    return giving(lambda flow: how(flow.h))


@dataclasses.dataclass
class Result:
    h: Any
    more: Any

    def __post_init__(self) -> None:
        self.twice = self.h * 2


class NamedPair(NamedTuple):
    h: Any
    more: Any


class Named(NamedPair):
    """A named tuple with a dict of its own."""


class Rows(list[Any]):
    """A list with an attribute."""


class Fields(dict[str, Any]):
    """A dict with an attribute."""


class Registered:
    def __init__(self, h: Any, more: Any) -> None:
        self.h, self.more = h, more


def _taken_apart(value: Any) -> tuple[list[Any], None]:
    return [value.h, value.more], None


def _put_together(items: Any, _: Any) -> Registered:
    return Registered(*items)


_pytree.register_pytree_node(Registered, _taken_apart, _put_together)


def _with(container: Any, name: str, value: Any) -> Any:
    setattr(container, name, value)
    return container


CONTAINERS: dict[str, Callable[[Any, list[Any]], Any]] = {
    "tuple": lambda h, more: (h, *more),
    "list": lambda h, more: [h, more],
    "dict": lambda h, more: {"h": h, "more": more},
    "ordered": lambda h, more: collections.OrderedDict[str, Any](h=h, more=more),
    "default": lambda h, more: collections.defaultdict(list, h=h, more=more),
    "deque": lambda h, more: collections.deque([h, *more]),
    "named": lambda h, more: _with(Named(h, more), "last", h[:, 0]),
    "dataclass": Result,
    "namespace": lambda h, more: types.SimpleNamespace(h=h, deep=types.SimpleNamespace(more=more)),
    "list and attribute": lambda h, more: _with(Rows([h, more]), "last", h[:, 0]),
    "dict and attribute": lambda h, more: _with(Fields(h=h, more=more), "last", h[:, 0]),
    "user dict": lambda h, more: collections.UserDict(h=h, more=more),
    "registered": Registered,
    "nested": lambda h, more: [{"deep": (Registered(h, more), Result(h, more))}],
}


# --- a callable -------------------------------------------------------------------------------


class Inner(nn.Module):
    aux_loss: Any = None


class Model(nn.Module):
    """The pieces, one after the other."""

    def __init__(self, padding: Padding, pieces: list[Step], container: Any) -> None:
        super().__init__()
        self.padding, self.pieces, self.container = padding, pieces, container
        self.inner = Inner()
        self.history: list[Any] = []
        self.metrics: dict[str, Any] = {}
        self.generator = torch.Generator()
        self.register_buffer("statistic", torch.zeros(()))

    def forward(self, x: Any, ids: Any, real: Any = None) -> Any:
        flow = Flow(x, ids, real, x * 1.0, [], self)
        for step in self.pieces:
            step(flow)
        return self.container(flow.h, flow.more)


@dataclasses.dataclass(frozen=True)
class Case:
    number: int
    names: tuple[str, ...]
    truth: int
    """Of the worst piece."""
    grad: bool
    fixed: FixedShape
    model: Model


def case_of(number: int) -> Case:
    """The callable of this number: always the same."""
    rng = random.Random(number)
    torch.manual_seed(number)  # pyright: ignore[reportUnknownMemberType]
    rows = rng.choice(["repeat", "repeat", 0.0, -100.0, 2.5])
    padding = Padding(rows, "repeat" if rows == "repeat" else IDS - 1, rng.random() < 0.3)
    known = [(item, item.truth(padding)) for item in PIECES]
    harmless = [pair for pair in known if pair[1] == HARMLESS]
    others = [pair for pair in known if pair[1] in (HARMFUL, OPEN)]
    chosen = rng.choices(harmless, k=rng.randint(1, 4))
    if rng.random() < 0.6:
        chosen += rng.choices(others, k=1 if rng.random() < 0.8 else 2)
    rng.shuffle(chosen)
    container = rng.choice(sorted(CONTAINERS))
    model = Model(padding, [item.make(rng) for item, _ in chosen], CONTAINERS[container])
    fixed = FixedShape(
        model,
        {"x": 0, "ids": 0},
        BUCKETS,
        pad={"": rows, "ids": padding.ids},
        mask="real" if padding.mask else None,
    )
    names = (f"pad={rows}", *(item.name for item, _ in chosen), container)
    truth = max(truth or HARMLESS for _, truth in chosen)
    return Case(number, names, truth, rng.random() < 0.3, fixed, model)


def batch_of(number: int, rows: int = ROWS) -> tuple[Any, Any]:
    generator = torch.Generator().manual_seed(number)
    ids = torch.randint(0, IDS - 1, (rows,), generator=generator)
    return torch.randn(rows, WIDTH, generator=generator), ids


def judgement_of(case: Case) -> PaddingReport | ShapeUnusable:
    """What the check says; an error where it refuses to say anything."""
    with torch.set_grad_enabled(case.grad):
        try:
            return case.fixed.check(*batch_of(case.number))
        except ShapeUnusable as error:
            return error


@dataclasses.dataclass
class Tally:
    """How many cases were judged how."""

    judged: Counter[tuple[str, str]] = dataclasses.field(default_factory=Counter[tuple[str, str]])
    """By truth and judgement."""
    false_accepts: list[str] = dataclasses.field(default_factory=list[str])
    false_refusals: list[str] = dataclasses.field(default_factory=list[str])
    wrong_calls: list[str] = dataclasses.field(default_factory=list[str])
    """Judged safe, but a call of another batch gave something else."""

    def __str__(self) -> str:
        counts = ", ".join(f"{a} judged {b}: {n}" for (a, b), n in sorted(self.judged.items()))
        return (
            f"{sum(self.judged.values())} callables ({counts}): "
            f"{len(self.false_accepts)} false accepts, {len(self.wrong_calls)} wrong calls, "
            f"{len(self.false_refusals)} false refusals"
        )


NAMES = ("harmless", "harmful", "open")


def campaign(numbers: Iterator[int] | range) -> Tally:
    """Judges the cases of these numbers."""
    tally = Tally()
    for number in numbers:
        case = case_of(number)
        judgement = judgement_of(case)
        refused = isinstance(judgement, ShapeUnusable)
        verdict = "refused" if refused else judgement.verdict
        tally.judged[NAMES[case.truth], verdict] += 1
        shown = f"{number} {case.names}: {judgement if refused else judgement.outputs}"
        if verdict == "safe" and case.truth != HARMLESS:
            tally.false_accepts.append(shown)
        elif verdict == "safe":
            wrong = difference(case)
            if wrong:
                tally.wrong_calls.append(f"{shown}: {wrong}")
        elif case.truth == HARMLESS:
            tally.false_refusals.append(shown)
    return tally


def difference(case: Case) -> str | None:
    """Where calls through the FixedShape and without it differ; None where they do not."""
    for index, rows in enumerate((1, 3, 8, 13)):
        batch = batch_of(case.number + 7919 * (index + 1), rows)
        with torch.no_grad():
            found = tensors_of(case.fixed(*batch))
            real = {"real": torch.ones(rows, dtype=torch.bool)} if case.model.padding.mask else {}
            expected = tensors_of(case.model(*batch, **real))
        if len(found) != len(expected):
            return f"{len(found)} tensors, not {len(expected)}, for {rows} rows"
        for one, other in zip(found, expected, strict=True):
            if one.shape != other.shape:
                return f"{list(one.shape)}, not {list(other.shape)}, for {rows} rows"
            if not torch.allclose(one.double(), other.double(), 1e-3, 1e-3, equal_nan=True):
                return f"other values for {rows} rows"
    return None


def tensors_of(value: Any) -> list[Any]:
    """All tensors in an output, found otherwise than the check does."""
    if isinstance(value, torch.Tensor):
        return [value]
    items: list[Any] = list(getattr(value, "__dict__", {}).values())
    if isinstance(value, (list, tuple, collections.deque)):
        items += _listed(value)
    elif isinstance(value, dict):
        items += _listed(value.values())  # pyright: ignore[reportUnknownMemberType]
    return [tensor for item in items for tensor in tensors_of(item)]


_listed: Callable[[Any], list[Any]] = list


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--cases", type=int, default=10_000)
    parser.add_argument("--first", type=int, default=0)
    options = parser.parse_args()
    torch.set_num_threads(1)
    began = time.monotonic()
    tally = campaign(range(options.first, options.first + options.cases))
    for kind in ("false_accepts", "wrong_calls", "false_refusals"):
        for shown in getattr(tally, kind)[:20]:
            print(f"{kind}: {shown[:600]}")
    print(f"{tally} ({time.monotonic() - began:.0f} s)")
    if tally.false_accepts or tally.wrong_calls:
        raise SystemExit(1)


if __name__ == "__main__":
    main()
