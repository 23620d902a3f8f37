"""Calls made again when the program is over, as they were and varied: what they return is compared
with what another state of the program returns for the same.

In a fork of the process, or in the process itself where an accelerator is in use; every call begins
in the state that the program ended in.
"""

from __future__ import annotations

import contextlib
import itertools
import random
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

from compilediag_harness.base.object_graph import get_class
from compilediag_harness.base.session import Session
from compilediag_harness.shapes import trees
from compilediag_harness.shapes.side_effects import SavedState, list_roots
from compilediag_harness.shapes.warming import compute_weighted_gradients
from compilediag_harness.torch_internals import torch_compiles, torch_replay
from compilediag_harness.trials import forked
from compilediag_harness.trials.call_digest import CallDigester, read_digests
from compilediag_harness.trials.kept_calls import CallKeeper, KeptCall, KeptCallable
from compilediag_harness.trials.variations import (
    AS_IT_WAS,
    MAX_VARIATIONS,
    Variation,
    list_variations,
)
from compilediag_harness.wire import CallVaried, Event, VaryingEnded, clip

SEED = 0
MAX_REASON = 300


class VariedCall(NamedTuple):
    """A call that is to be made again."""

    kept: KeptCallable
    call: KeptCall
    variation: Variation

    def __str__(self) -> str:
        return f"{self.kept.name} ({self.call.label}), {self.variation.label}"


def vary_calls(session: Session, torch: Any, keeper: CallKeeper, limit_s: float, t: float) -> None:
    """Make the kept calls of a process again, for so many seconds at most; emit what came out, as
    of the time `t`."""
    began = time.monotonic()
    sink = session.replace_sink(lambda _: None)  # what is compiled now is none of the program's
    folder = tempfile.mkdtemp(prefix="compilediag-")
    left_out = list(keeper.left_out)
    try:
        if _is_distributed(torch):
            left_out.append("every call: processes of a group wait for each other")
        else:
            varier = _Varier(torch, keeper, t)
            for message in _run(varier, torch, folder, limit_s):
                if isinstance(message, Event):
                    sink(message)
                else:
                    left_out.append(str(message))
    finally:
        session.replace_sink(sink)
        shutil.rmtree(folder, ignore_errors=True)
    session.emit(VaryingEnded(t, time.monotonic() - began, tuple(dict.fromkeys(left_out))))


def _is_distributed(torch: Any) -> bool:
    distributed = torch.distributed
    return bool(distributed.is_available() and distributed.is_initialized())


def _run(varier: _Varier, torch: Any, folder: str, limit_s: float) -> list[Any]:
    """Run the calls; events, and sentences about what is left out."""
    deadline = time.monotonic() + limit_s
    if forked.can_fork(torch):
        with contextlib.suppress(OSError, RuntimeError):

            def make_calls(send: forked.Send) -> None:
                # Not with another number of threads, on which every compiled graph has a guard.
                varier.run(folder, deadline, send)

            outcome = forked.run_in_fork(make_calls, limit_s)
            return _read_outcome(varier, outcome)
    messages: list[Any] = []
    with forked.hide_output():
        varier.run(folder, deadline, messages.append)
    return [message for message in messages if not isinstance(message, int)]


def _read_outcome(varier: _Varier, outcome: forked.ForkOutcome) -> list[Any]:
    """Read what a fork sent: before each call its number."""
    messages = [message for message in outcome.messages if not isinstance(message, int)]
    numbers = [message for message in outcome.messages if isinstance(message, int)]
    last = varier.calls[numbers[-1]] if numbers else None
    if outcome.was_late:
        messages.append(f"what comes after {last}: it takes too long")
    elif outcome.crash is not None:
        if last is not None:
            messages.append(varier.make_event(last, raised=f"the process ended by {outcome.crash}"))
        messages.append(f"what comes after {last}: the process ended by {outcome.crash}")
    return messages


class _Varier:
    """Makes kept calls again."""

    def __init__(self, torch: Any, keeper: CallKeeper, t: float) -> None:
        self._torch, self._t = torch, t
        self._digester = CallDigester(torch)
        self._left_out: list[str] = []
        kinds = [(kept, its) for kept in keeper.callables.values() for its in kept.kinds.values()]
        self._kinds = [(kept, call) for kept, call in kinds if self._can_repeat(kept, call)]
        self.calls = list(self._iterate_calls())

    def _can_repeat(self, kept: KeptCallable, call: KeptCall) -> bool:
        used = [path for path, leaf in zip(call.paths, call.leaves, strict=True) if _is_used(leaf)]
        if used:
            text = f"{kept.name} ({call.label}): {used[0]} is an iterator, which a call uses up"
            self._left_out.append(text)
        return not used

    def _iterate_calls(self) -> Iterator[VariedCall]:
        """Iterate over the calls in their order: as they were, varied, by the program's backend."""
        yield from (VariedCall(*kind, AS_IT_WAS) for kind in self._kinds)
        varied: list[list[VariedCall]] = []
        own: list[list[VariedCall]] = []
        for kept, call in self._kinds:
            made = [VariedCall(kept, call, its) for its in list_variations(self._torch, kept, call)]
            forced = [its for its in made if not its.variation.own_backend]
            own.append([its for its in made if its.variation.own_backend])
            varied.append(forced[:MAX_VARIATIONS])
            if len(forced) > MAX_VARIATIONS:
                text = f"{len(forced) - MAX_VARIATIONS} more variations"
                self._left_out.append(f"{kept.name} ({call.label}): {text}")
        for lists in (varied, own):
            rows = itertools.zip_longest(*lists)
            yield from (its for row in rows for its in row if its is not None)

    def run(self, folder: str, deadline: float, send: forked.Send) -> None:
        """Make the calls until the deadline; send the number of each before it, its event after it,
        and what is left out."""
        for sentence in self._left_out:
            send(sentence)
        roots = tuple(
            root
            for _, call in self._kinds
            for root in list_roots(call.root, dict(zip(call.paths, call.leaves, strict=True)))
        )
        failed: set[str] = set()
        late: dict[str, int] = {}
        with torch_replay.isolate_compiles(folder), SavedState(self._torch, roots) as state:
            for number, varied in enumerate(self.calls):
                kind = f"{varied.kept.name} ({varied.call.label})"
                if time.monotonic() > deadline:
                    late[kind] = late.get(kind, 0) + 1
                elif kind not in failed:
                    send(number)
                    state.put_back()
                    event = self._make_call(varied)
                    send(event)
                    if event.raised is not None and varied.variation is AS_IT_WAS:
                        failed.add(kind)
                        send(f"{kind}: it was not varied, since it fails as it was")
        for kind, count in late.items():
            send(f"{kind}: {count} variations, for which no time was left")

    def _make_call(self, varied: VariedCall) -> CallVaried:
        torch, call, variation = self._torch, varied.call, varied.variation
        for module, training in call.training:
            module.training = training
        _seed(torch)
        modes = call.modes
        assert modes is not None
        if variation.gradients is not None:
            modes = modes._replace(gradients=variation.gradients)
        forced = not variation.own_backend
        backend = torch_replay.force_backend(torch, "eager") if forced else contextlib.nullcontext()
        before = torch_compiles.read_counter("stats", "unique_graphs") or 0
        pending, names, raised = None, "", None
        try:
            inputs, arguments = self._build_arguments(call, variation)
            versions = self._read_versions(arguments)
            with backend, torch_replay.enter_modes(torch, modes):
                result = call.get_function()(*arguments[0], **arguments[1])
                names, gradients = self._compute_gradients(call, result, inputs)
            written = tuple(its for its, version in versions if its._version != version)
            pending = self._digester.begin((result, gradients, written))
        except BaseException as error:  # of the program; `SystemExit` too
            first = str(error).partition("\n")[0]
            raised = clip(f"{get_class(error).__name__}: {first}", MAX_REASON)
        compiles = (torch_compiles.read_counter("stats", "unique_graphs") or 0) - before
        if pending is None:
            return self.make_event(varied, raised=raised, compiles=compiles)
        digests, structure = tuple(read_digests([pending])), f"{pending.structure}{names}"
        return self.make_event(varied, structure, digests, None, compiles)

    def make_event(
        self,
        varied: VariedCall,
        structure: str = "",
        digests: tuple[Any, ...] = (),
        raised: str | None = None,
        compiles: int = 0,
    ) -> CallVaried:
        """Make the event of a call."""
        kept, call, variation = varied
        label = variation.label
        return CallVaried(
            self._t, kept.place, call.label, label, structure, digests, raised, compiles
        )

    def _build_arguments(self, call: KeptCall, variation: Variation) -> tuple[list[Any], Any]:
        """Build the arguments of a call, and list those that want a gradient."""
        torch = self._torch
        leaves, inputs = list(call.leaves), list[Any]()
        changes = dict(variation.changes)
        for index, kept in enumerate(call.leaves):
            is_tensor = _is_tensor(torch, kept)
            value = kept.detach() if is_tensor and index in changes else kept
            if index in changes:
                value = changes[index](value)
            if is_tensor and value is not None:
                is_inner = index in call.inner
                if is_inner or (value is not kept and kept.requires_grad):
                    value = value.detach().requires_grad_()
                if value.requires_grad:
                    inputs.append(value)
                # What another operation gave may be written in place, as no leaf may.
                value = value.clone() if is_inner else value
            leaves[index] = value
        return inputs, trees.rebuild(call.arguments, iter(leaves))

    def _read_versions(self, arguments: Any) -> list[tuple[Any, int]]:
        leaves: list[Any] = []
        trees.flatten(arguments, leaves)
        tensors = [leaf for leaf in leaves if _is_tensor(self._torch, leaf)]
        return [(leaf, leaf._version) for leaf in tensors if not leaf.is_inference()]

    def _compute_gradients(
        self, call: KeptCall, result: Any, inputs: list[Any]
    ) -> tuple[str, tuple[Any, ...]]:
        """Compute the gradients of what a call was given and of its parameters; and name the
        results that have any."""
        leaves: list[Any] = []
        paths = trees.list_paths(trees.flatten(result, leaves))
        pairs = zip(paths, leaves, strict=True)
        losses = {p: its for p, its in pairs if _is_tensor(self._torch, its) and its.requires_grad}
        if not losses or not self._torch.is_grad_enabled():
            return "", ()
        parameters = (one for module in call.modules for one in module.parameters())
        wanted = {id(one): one for one in (*inputs, *parameters) if one.requires_grad}
        gradients = compute_weighted_gradients(
            self._torch, list(losses.values()), list(wanted.values())
        )
        return f"; gradients through {', '.join(path or 'it' for path in losses)}", gradients


def _is_tensor(torch: Any, value: Any) -> bool:
    return issubclass(get_class(value), torch.Tensor)


def _is_used(value: Any) -> bool:
    """True if reading a value changes it, as that of an iterator."""
    return hasattr(get_class(value), "__next__")


def _seed(torch: Any) -> None:
    numpy = sys.modules.get("numpy.random")
    seeds: list[Callable[[int], object]] = [random.seed, torch.manual_seed]
    for seed in (*seeds, *(() if numpy is None else (numpy.seed,))):
        seed(SEED)
