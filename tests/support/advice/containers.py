"""Containers that grow or change their keys, and caches (CD102, CD103, CD104, CD108, CD109,
CD114)."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

from advice.case import OTHER, X, case, compiled, warmed

INPUTS = [X + count for count in range(4)]
RING = 4

# --- a history that grows -------------------------------------------------------------------------


class History(nn.Module):
    """Appends to a list in each call."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: list[Any] = []

    def forward(self, x: Any) -> Any:
        self.seen.append(x.sum())
        return x * 2


class Returned(nn.Module):
    """Returns what it would append."""

    def forward(self, x: Any) -> Any:
        return x * 2, x.sum()


class Ring(nn.Module):
    """Writes into a tensor at a position that is a tensor."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("seen", torch.zeros(RING))
        self.register_buffer("position", torch.zeros((), dtype=torch.long))

    def forward(self, x: Any) -> Any:
        self.seen.index_copy_(0, (self.position % RING).view(1), x.sum().view(1))
        self.position.add_(1)
        return x * 2


class Disabled(History):
    """Appends in a function that is not compiled."""

    @torch.compiler.disable
    def note(self, value: Any) -> None:
        self.seen.append(value)

    def forward(self, x: Any) -> Any:
        self.note(x.sum())
        return x * 2


def history(module: Any) -> Any:
    call = compiled(module)
    results = [call(x) for x in INPUTS]
    return results, [value.clone() for value in module.seen]


def collected(function: Any) -> Any:
    call, seen, results = compiled(function), [], []
    for x in INPUTS:
        y, value = call(x)
        results.append(y)
        seen.append(value)
    return results, seen


case(
    "a list of a module",
    ("CD104", "grows"),
    lambda: history(History()),
    lambda: collected(Returned()),
    lambda: history(Ring()),
    lambda: history(Disabled()),
)


def hook_history(how: str) -> Any:
    model, seen, ring = nn.Linear(4, 4), [], torch.zeros(RING)
    position = torch.zeros((), dtype=torch.long)
    with torch.no_grad():
        model.weight.fill_(0.5)
        model.bias.fill_(0.5)

    def append(module: Any, args: Any, output: Any) -> None:
        seen.append(output.detach().sum())

    def write(module: Any, args: Any, output: Any) -> None:
        ring.index_copy_(0, (position % RING).view(1), output.detach().sum().view(1))
        position.add_(1)

    hooks = {"append": append, "ring": write, "disabled": torch.compiler.disable(append)}
    model.register_forward_hook(hooks[how])
    call = compiled(model)
    for x in INPUTS:
        call(x)
    return list(ring) if how == "ring" else seen


case(
    "a hook's list",
    ("CD102", "hook"),
    lambda: hook_history("append"),
    lambda: hook_history("ring"),
    lambda: hook_history("disabled"),
)


class Names(nn.Module):
    """Adds to a set in each call."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: Any = set()

    def forward(self, x: Any, name: str) -> Any:
        self.seen.add(name)
        return x * 2


def added() -> Any:
    module = Names()
    call = compiled(module)
    return [call(X, name) for name in "abc"], len(module.seen)


# --- a container that others fill -----------------------------------------------------------------


class Counting(nn.Module):
    """Reads the length of a list."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: list[Any] = []

    def forward(self, x: Any) -> Any:
        return x * (1 + len(self.seen))


def counted() -> Any:
    module = Counting()
    call, results = compiled(module), []
    for x in INPUTS:
        results.append(call(x))
        module.seen.append(x)
    return results


def length_passed() -> Any:
    call = compiled(lambda x, length: x * (1 + length))
    return [call(x, torch.tensor(length)) for length, x in enumerate(INPUTS)]


case("the length of a module's list", ("CD104", "length"), counted, length_passed)


def captured_keys(*, filled: bool) -> Any:
    biases: dict[str, Any] = {"bias": OTHER} if filled else {}

    def shift(x: Any) -> Any:
        return x + biases["bias"] if "bias" in biases else x + OTHER

    call = compiled(shift)
    results = [call(X)]
    biases["bias"] = OTHER
    return [*results, call(X)]


def shifted() -> Any:
    call = compiled(lambda x, bias: x + bias)
    return [call(X, OTHER), call(X, OTHER)]


case(
    "a captured dict that is filled",
    ("CD102", "keys"),
    lambda: captured_keys(filled=False),
    lambda: captured_keys(filled=True),
    shifted,
)


class Adapters(nn.Module):
    """Applies all that it has."""

    def __init__(self, names: str, weight: float) -> None:
        super().__init__()
        self.adapters = nn.ModuleDict()
        for name in names:
            self.add(name, weight)

    def add(self, name: str, weight: float) -> None:
        self.adapters[name] = Scaled(weight)

    def forward(self, x: Any) -> Any:
        y = x * 1
        for adapter in self.adapters.values():
            y = y + adapter(x)
        return y


class Scaled(nn.Module):
    """Its weight is a buffer."""

    def __init__(self, weight: float) -> None:
        super().__init__()
        self.register_buffer("weight", torch.tensor(weight))

    def forward(self, x: Any) -> Any:
        return x * self.weight


def adapters_added() -> Any:
    module = Adapters("", 2.0)
    call = compiled(module)
    results = [call(X)]
    for name in "ab":
        module.add(name, 2.0)
        results.append(call(X))
    return results


def adapters_before() -> Any:
    module = Adapters("ab", 0.0)
    call = compiled(module)
    results = [call(X)]
    for name in "ab":
        module.adapters[name].weight.fill_(2.0)
        results.append(call(X))
    return results


case("adapters that are added", ("CD104", "modules"), adapters_added, adapters_before)

# --- arguments ------------------------------------------------------------------------------------


def summed(batch: dict[str, Any]) -> Any:
    return batch["x"] + batch["bias"] if "bias" in batch else batch["x"] + 0


WITH, WITHOUT = {"x": X, "bias": OTHER}, {"x": X}


def batches(function: Any, *given: Any, warm: bool = False) -> Any:
    call = compiled(function)
    if warm:
        for batch in given:
            call(batch)
        warmed()
    return [call(batch) for batch in given]


case(
    "a missing key",
    ("CD108", "members"),
    lambda: batches(summed, WITH, WITHOUT),
    lambda: batches(summed, WITH, {"x": X, "bias": torch.zeros(4)}),
    lambda: batches(summed, WITH, WITHOUT, warm=True),
)


def biased(x: Any, **options: Any) -> Any:
    return x + options["bias"] if "bias" in options else x + 0


def by_keyword(function: Any, *given: Any, warm: bool = False) -> Any:
    call = compiled(function)
    if warm:
        for batch in given:
            call(**batch)
        warmed()
    return [call(**batch) for batch in given]


case(
    "a keyword that some calls pass",
    ("CD108", "keyword"),
    lambda: by_keyword(biased, WITHOUT, WITH),
    lambda: by_keyword(biased, WITHOUT, WITH, warm=True),
    lambda: by_keyword(biased, {"x": X, "bias": torch.zeros(4)}, WITH),
)


def total(batch: dict[str, Any]) -> Any:
    return sum(batch.values())


ORDERS = [{"x": X, "y": OTHER}, {"y": OTHER, "x": X}]
case(
    "keys in another order",
    ("CD108", "keys"),
    lambda: batches(total, *ORDERS),
    lambda: batches(total, *(dict(sorted(batch.items())) for batch in ORDERS)),
    lambda: batches(total, *ORDERS, warm=True),
)
LISTS = [[X] * length for length in (1, 2, 3)]


def padded(parts: list[Any]) -> tuple[Any, Any]:
    missing = 3 - len(parts)
    mask = torch.tensor([1.0] * len(parts) + [0.0] * missing)
    return torch.stack([*parts, *[torch.zeros(4)] * missing]), mask[:, None]


case(
    "a list of tensors",
    ("CD108", None),
    lambda: batches(add_up, *LISTS),
    lambda: batches(masked, *map(padded, LISTS)),
    lambda: batches(add_up, *LISTS, warm=True),
)


def add_up(parts: list[Any]) -> Any:
    return sum(parts)


def masked(given: tuple[Any, Any]) -> Any:
    stacked, mask = given
    return (stacked * mask).sum(0)


def first_two(pair: Any) -> Any:
    return pair[0] + pair[1]


case(
    "a tuple instead of a list",
    ("CD108", "type"),
    lambda: batches(first_two, [X, OTHER], (X, OTHER)),
    lambda: batches(first_two, [X, OTHER], [X, OTHER]),
)


def shift_maybe(x: Any, bias: Any) -> Any:
    return x if bias is None else x + bias


def pairs(function: Any, *given: Any, warm: bool = False) -> Any:
    call = compiled(function)
    if warm:
        for pair in given:
            call(*pair)
        warmed()
    return [call(*pair) for pair in given]


case(
    "an optional tensor",
    ("CD114", None),
    lambda: pairs(shift_maybe, (X, OTHER), (X, None), (X, OTHER)),
    lambda: pairs(shift_maybe, (X, OTHER), (X, None), (X, OTHER), warm=True),
    lambda: pairs(shift_maybe, (X, OTHER), (X, torch.zeros(4)), (X, OTHER)),
)


def scaled_maybe(x: Any, options: Any) -> Any:
    return x if options is None else x * options["scale"]


case(
    "an optional dictionary",
    ("CD114", "object"),
    lambda: pairs(scaled_maybe, (X, {"scale": 2.0}), (X, None), (X, {"scale": 2.0})),
    lambda: pairs(scaled_maybe, (X, {"scale": 2.0}), (X, None), (X, {"scale": 2.0}), warm=True),
)

# --- caches ---------------------------------------------------------------------------------------

TOKENS = [torch.full((1, 4), float(count)) for count in range(1, 5)]


def attend(x: Any, past: Any = None) -> Any:
    keys = x * 1 if past is None else torch.cat([past, x])
    return (keys * x).sum(), keys


def generated() -> Any:
    call, past, results = compiled(attend), None, []
    for token in TOKENS:
        y, past = call(token, past)
        results.append(y)
    return results


def attend_at(x: Any, past: Any, position: Any) -> Any:
    past.index_copy_(0, position.view(1), x)
    mask = (torch.arange(len(past)) <= position)[:, None]
    return (past * mask * x).sum()


def generated_in_place() -> Any:
    past = torch.zeros(len(TOKENS), 4)
    call = compiled(attend_at)
    return [call(token, past, torch.tensor(at)) for at, token in enumerate(TOKENS)]


case("a cache that is concatenated", ("CD114", "cache"), generated, generated_in_place)


class Table(nn.Module):
    """Grows its table for a longer input."""

    def __init__(self, size: int) -> None:
        super().__init__()
        self.table = torch.ones(size, 4)

    def forward(self, x: Any) -> Any:
        if len(self.table) < len(x):
            self.table = torch.ones(len(x), 4)
        return x + self.table[: len(x)]


def looked_up(module: Any) -> Any:
    call = compiled(module)
    return [call(torch.ones(3, 4)) for _ in range(3)]


class Appending(nn.Module):
    """Concatenates what it has seen."""

    def __init__(self) -> None:
        super().__init__()
        self.seen = torch.zeros(0, 4)

    def forward(self, x: Any) -> Any:
        self.seen = torch.cat([self.seen, x])
        return (self.seen * x).sum()


class WritingAt(nn.Module):
    """Writes what it has seen at a position."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("seen", torch.zeros(len(TOKENS), 4))
        self.register_buffer("position", torch.zeros((), dtype=torch.long))

    def forward(self, x: Any) -> Any:
        self.seen.index_copy_(0, self.position.view(1), x)
        mask = (torch.arange(len(self.seen)) <= self.position)[:, None]
        self.position.add_(1)
        return (self.seen * mask * x).sum()


def tokens(module: Any) -> Any:
    call = compiled(module)
    return [call(token) for token in TOKENS]


case(
    "a table that grows",
    ("CD103", None),
    lambda: looked_up(Table(1)),
    lambda: looked_up(Table(8)),
)
case(
    "a buffer that is concatenated",
    ("CD103", None),
    lambda: tokens(Appending()),
    None,
    lambda: tokens(WritingAt()),
)


class Cache:
    """Is passed by the caller, concatenates or writes in place."""

    def __init__(self, *, made: bool = False) -> None:
        self.seen: Any = torch.zeros(len(TOKENS), 4) if made else None
        self.ready, self.made = made, made

    def prepare(self) -> None:
        self.seen = torch.zeros(len(TOKENS), 4)
        self.ready = True


def appended(token: Any, cache: Cache, position: Any) -> Any:
    if cache.made:
        cache.seen.index_copy_(0, position, token)
        return (cache.seen * token).sum()
    cache.seen = token * 1 if cache.seen is None else torch.cat([cache.seen, token])
    return (cache.seen * token).sum()


def stored(token: Any, cache: Cache, position: Any) -> Any:
    if not cache.ready:
        cache.prepare()
    cache.seen.index_copy_(0, position, token)
    return (cache.seen * token).sum()


def decoded(function: Any, *, made: bool = False, ready: bool = False, warm: bool = False) -> Any:
    call, results = compiled(function), []
    for times in range(2 if warm else 1):
        if times:
            warmed()
        cache = Cache(made=made)
        if ready:
            cache.prepare()
        results = [call(token, cache, torch.tensor([at])) for at, token in enumerate(TOKENS)]
    return results


case(
    "a cache that is passed and concatenated",
    ("CD103", "argument"),
    lambda: decoded(appended),
    lambda: decoded(appended, made=True),
)
case(
    "a cache that is passed and prepares itself",
    ("CD104", "argument_branch"),
    lambda: decoded(stored),
    lambda: decoded(stored, ready=True),
    lambda: decoded(stored, warm=True),
)


class Lazy(nn.Module):
    """Computes a table in its first call."""

    def __init__(self, *, early: bool = False) -> None:
        super().__init__()
        self.table: Any = torch.ones(4) * 2 if early else None

    def forward(self, x: Any) -> Any:
        if self.table is None:
            self.table = torch.ones(4) * 2
        return x + self.table


def lazy(*, early: bool = False, eager: bool = False) -> Any:
    module = Lazy(early=early)
    if eager:
        module(X)
    call = compiled(module)
    return [call(X) for _ in range(3)]


case(
    "a table that is created in the first call",
    ("CD103", "created"),
    lazy,
    lambda: lazy(early=True),
    lambda: lazy(eager=True),
)


class Rotary(nn.Module):
    """Remembers the length that its preallocated cache is filled for."""

    def __init__(self, filled: int = 0) -> None:
        super().__init__()
        self.register_buffer("cached_freqs", torch.zeros(16, 4))
        self.cached_freqs_seq_len = 0
        if filled:
            self.fill(filled)

    def fill(self, length: int) -> None:
        self.cached_freqs[:length] = 2.0
        self.cached_freqs_seq_len = length

    def forward(self, x: Any) -> Any:
        if len(x) > self.cached_freqs_seq_len:
            self.fill(len(x))
        return x * self.cached_freqs[: len(x)]


def rotated(module: Any, *, eager: bool = False) -> Any:
    if eager:
        module(torch.ones(8, 4))
    call = compiled(module)
    return [call(torch.ones(8, 4)) for _ in range(3)]


case(
    "the fill of a cache",
    ("CD103", "companion"),
    lambda: rotated(Rotary()),
    lambda: rotated(Rotary(8)),
    lambda: rotated(Rotary(), eager=True),
)
