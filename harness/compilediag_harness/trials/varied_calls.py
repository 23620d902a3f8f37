"""Calls made again when the program is over, as they were and varied: what they return is compared
with what another state of the program returns for the same.

In a fork of the process, or in the process itself where a fork cannot run torch; every call begins
in the state that the program ended in, but for small state, which is as the kept call found it.
"""

from __future__ import annotations

import contextlib
import dis
import itertools
import math
import os
import random
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Collection, Generator, Iterable, Mapping
from dataclasses import replace
from typing import Any, NamedTuple

from compilediag_harness.base.object_graph import get_attributes, get_class
from compilediag_harness.base.session import Session
from compilediag_harness.blame.source_locations import is_own_frame
from compilediag_harness.shapes import trees
from compilediag_harness.shapes.dims import repeat_rows
from compilediag_harness.shapes.side_effects import RandomStates, SavedState, list_roots
from compilediag_harness.shapes.warming import compute_weighted_gradients
from compilediag_harness.torch_internals import torch_api, torch_compiles, torch_replay
from compilediag_harness.trials import forked
from compilediag_harness.trials.call_digest import CallDigester, DigestBatch, PendingDigest
from compilediag_harness.trials.forked import Send
from compilediag_harness.trials.kept_calls import (
    MAX_COUNTED,
    PLAIN,
    CallKeeper,
    KeptCall,
    KeptCallable,
    is_tensor,
    read_small,
)
from compilediag_harness.trials.variations import AS_IT_WAS, REPEATS, Variation, list_variations
from compilediag_harness.wire import (
    GRAPH_USED_UP,
    NO_TIME_LEFT,
    ROUNDS,
    CallVaried,
    Event,
    FaultOccurred,
    VaryingEnded,
    WatchedLines,
    clip,
)

SEED = 0
MAX_REASON = 300

COMPILES = 1.0
MAX_S = 120.0
"""The calls take at most so many times the seconds in which the program compiled, and so many; but
what the plan allows they always may."""

Watch = Callable[[], contextlib.AbstractContextManager[list[WatchedLines] | None]]
"""Watches a block, at whose end the watched lines that ran in it are in the list."""

APART_S, APART_BYTES = 3.0, 2 << 30
"""What a call beyond the run may take, and allocate."""

APART_SHARE = 0.5
"""Of the time for all calls, for those beyond the run."""

LONGER = 3
"""So many times longer where less than half of the calls were made in the time for all."""

_NO_MEMORY = "can't allocate memory"
"""In what torch raises then (c10/core/impl/alloc_cpu.cpp)."""

_BEGUN = "begun"
"""What a call raised that has not ended."""


class VariedCall(NamedTuple):
    """A call that is to be made again."""

    kept: KeptCallable
    call: KeptCall
    variation: Variation

    @property
    def kind(self) -> str:
        return f"{self.kept.name} ({self.call.label})"


def vary_calls(
    session: Session,
    torch: Any,
    keeper: CallKeeper,
    vary_s: float,
    t: float,
    watch: Watch = contextlib.nullcontext,
) -> bool:
    """Make the kept calls of a process again, for so many seconds, or longer where the program
    compiled for long, or the machine is slow; emit what came out, as of the time `t`. True where
    that broke the device."""
    began = time.monotonic()
    compile_s = torch_replay.read_compile_seconds()
    limit_s = max(vary_s, min(COMPILES * compile_s, MAX_S))
    # What is compiled now is none of the program's.
    sink = session.replace_sink(lambda _: None)
    folder = tempfile.mkdtemp(prefix="compilediag-")
    left_out, problem = dict(keeper.left_out), None
    reason = torch_replay.find_device_problem(torch)
    if torch.distributed.is_available() and torch.distributed.is_initialized():
        reason = "processes of torch.distributed wait for each other; --no-vary leaves this out"
    try:
        if reason is not None:
            left_out[f"every call: {reason}"] = None
        else:
            varier = _Varier(torch, keeper, t, limit_s, compile_s, watch)
            with forked.end_at_signals():  # the program itself is over
                messages, problem = _run(session, varier, torch, folder, varier.longest_s)
            for message in _note_end(messages, problem):
                if isinstance(message, Event):
                    sink(message)
                else:
                    left_out[message] = None
    finally:
        session.replace_sink(sink)
        shutil.rmtree(folder, ignore_errors=True)
    seconds = time.monotonic() - began
    ended_by = (problem == forked.INTERRUPTED, problem == forked.TIMED_OUT)
    session.emit(VaryingEnded(t, seconds, tuple(left_out), *ended_by))
    return reason is None and torch_replay.find_device_problem(torch) is not None


def _run(
    session: Session, varier: _Varier, torch: Any, folder: str, limit_s: float
) -> tuple[list[Any], str | None]:
    """Run the calls; events and sentences about what is left out, and why no more came."""

    def make_calls(send: Send) -> None:
        def send_fault(event: Event) -> None:
            if isinstance(event, FaultOccurred):
                send(event)

        session.replace_sink(send_fault)
        with session.catch_faults("recording: varied calls"), torch_replay.isolate_compiles(folder):
            try:
                varier.run(send)
            except RuntimeError:
                if torch_replay.find_device_problem(torch) is None:
                    raise

    messages = list[Any]()
    try:
        with contextlib.suppress(OSError, RuntimeError):
            if forked.can_fork(torch, f"{folder}/tried"):
                varier.folder = folder
                return forked.run_in_fork(make_calls, f"{folder}/messages", limit_s)
        with forked.hide_output():
            make_calls(messages.append)
    except KeyboardInterrupt as error:
        return messages, forked.describe_interrupt(error)
    return messages, torch_replay.find_device_problem(torch)


def _note_end(messages: list[Any], problem: str | None) -> list[Any]:
    """Note why no more came, which may have been in the middle of a call."""
    noted = [message for message in messages if getattr(message, "raised", None) != _BEGUN]
    if problem is not None:
        made = (message for message in reversed(messages) if isinstance(message, CallVaried))
        last, what = next(made, None), "every call"
        if last is not None:
            what = f"what comes after {last.function.function} ({last.call}), {last.variation}"
            if last.raised == _BEGUN and problem not in forked.ENDED_FROM_OUTSIDE:
                noted.append(replace(last, raised=problem))
        noted.append(f"{what}: {problem}")
    return noted


class _Varier:
    """Makes kept calls again, for so many seconds."""

    def __init__(
        self,
        torch: Any,
        keeper: CallKeeper,
        t: float,
        limit_s: float,
        compile_s: float,
        watch: Watch,
    ) -> None:
        self._torch, self._keeper, self._t, self._watch = torch, keeper, t, watch
        self._limit_s, self._compile_s = limit_s, compile_s
        self.longest_s = max(limit_s, min(LONGER * limit_s, MAX_S))
        self._digester = CallDigester(torch)
        self.folder: str | None = None
        """Of a process that may be forked."""
        self._apart_s, self._too_much = limit_s * APART_SHARE, set[str]()
        self._not_made = 0

    def run(self, send: Send) -> None:
        """Make the calls; send each before it, what came out after it, and what is left out."""
        began = time.monotonic()
        calls = self._list_calls(send)
        kept = {id(its.call): its.call for its in calls}.values()
        roots = tuple(
            root
            for call in kept
            for root in list_roots(call.root, dict(zip(call.paths, call.leaves, strict=True)))
        )
        failed: set[str] = set()
        with SavedState(self._torch, roots) as state:
            for number, varied in enumerate(calls):
                # The program's backend may need as long as it did for a call of the program's.
                needed = self._compile_s / len(kept) if varied.variation.own_backend else 0.0
                limit_s = self._limit_s if 2 * number >= len(calls) else self.longest_s
                spent_s = time.monotonic() - began
                if spent_s + needed > limit_s:
                    left = f"{len(calls) - number} of {len(calls)} calls"
                    send(f"{left}, {NO_TIME_LEFT} in {max(spent_s, limit_s):.0f} s")
                    break
                if varied.kind in failed:
                    continue
                state.put_back()
                if varied.call.found is not None:
                    varied.call.found.put_back()
                if varied.variation.is_beyond:
                    self._make_apart(varied, send)
                    continue
                send(self._make_event(varied, raised=_BEGUN))
                event = self._make_call(varied)
                send(event)
                if event.raised is not None and varied.variation is AS_IT_WAS:
                    failed.add(varied.kind)
                    why = f"it was not varied, since it fails as it was: {event.raised}"
                    send(f"{varied.kind}: {why}")

        if self._not_made:
            why = f"{NO_TIME_LEFT}, or no memory"
            why = "which need a fork" if self.folder is None else why
            send(f"{self._not_made} of {len(calls)} calls, beyond the run, {why}")

    def _list_calls(self, send: Send) -> list[VariedCall]:
        """List the calls in their order: of all kinds those that come first in each."""
        lists: list[list[VariedCall]] = []
        for kept in self._keeper.callables.values():
            for call in kept.kinds.values():
                gone = call.restore()
                leaves = zip(call.paths, call.leaves, strict=True)
                # What reading changes, as an iterator.
                used = [path for path, leaf in leaves if hasattr(get_class(leaf), "__next__")]
                if gone is not None:
                    send(f"{kept.name} ({call.label}): {gone} is an object that is gone")
                elif used:
                    used_up = f"{used[0]} is an iterator, which a call uses up"
                    send(f"{kept.name} ({call.label}): {used_up}")
                else:
                    repeats = REPEATS if self._keeper.repeats else ()
                    variations = repeats or list_variations(kept, call)
                    lists.append([VariedCall(kept, call, its) for its in variations])
        rows = itertools.zip_longest(*lists)
        calls = [its for row in rows for its in row if its is not None]
        return sorted(calls, key=lambda its: its.variation.own_backend)

    def _make_apart(self, varied: VariedCall, send: Send) -> None:
        """Make a call in a fork of its own, and send what came out, a crash too. One that needs
        more memory or time than it gets is the last of its kind."""
        if self.folder is None or self._apart_s <= 0.0 or varied.kind in self._too_much:
            self._not_made += 1
            return

        def make(send: Send) -> None:
            forked.limit_memory(APART_BYTES)
            send(self._make_call(varied))

        began = time.monotonic()
        made, problem = forked.run_in_fork(make, f"{self.folder}/apart", APART_S, grace_s=0.0)
        self._apart_s -= time.monotonic() - began
        if problem in forked.ENDED_FROM_OUTSIDE or (made and _NO_MEMORY in (made[0].raised or "")):
            self._too_much.add(varied.kind)
            self._not_made += 1
        else:
            send(made[0] if problem is None else self._make_event(varied, raised=problem))

    def _make_call(self, varied: VariedCall) -> CallVaried:
        torch, call, variation = self._torch, varied.call, varied.variation
        for module, training in call.training:
            module.training = training if variation.training is None else variation.training
        _seed(torch)
        before = torch_compiles.read_counter("stats", "unique_graphs") or 0
        event, pending, raised = self._make_event(varied), list[PendingDigest](), None
        leaves = call.leaves if variation is AS_IT_WAS else ()
        given = [self._digester.begin(leaf) for leaf in leaves]  # before it is written to
        try:
            event, pending = self._read_left(varied, event)
        except KeyboardInterrupt:  # without a fork: it ends them all
            raise
        except BaseException as error:  # of the program; `SystemExit` too
            first = str(error).partition("\n")[0]
            raised = clip(f"{get_class(error).__name__}: {first}", MAX_REASON)
            lines = _find_own_raise(error)
            event = replace(event, lines=lines, is_refused=variation.is_larger and bool(lines))
        compiles = (torch_compiles.read_counter("stats", "unique_graphs") or 0) - before
        texts = (f"{path}: {its.structure}" for path, its in zip(call.paths, given, strict=False))
        event = replace(event, raised=raised, compiles=compiles, given=tuple(texts))
        event = replace(event, given_digests=tuple(DigestBatch(given).read()))
        return replace(event, digest=tuple(DigestBatch(pending).read()))

    def _read_left(
        self, varied: VariedCall, event: CallVaried
    ) -> tuple[CallVaried, list[PendingDigest]]:
        """Make a call, and read what it left, into its event: results, gradients, and what it wrote
        to; their digest is begun."""
        torch, call, variation = self._torch, varied.call, varied.variation
        if variation.held is not None:  # it may be gone by now, where nothing is put back
            _change_held(torch, *variation.held)
        inputs, arguments = self._build_arguments(call, variation)
        # `held` keeps what is replaced alive: nothing new gets its id.
        held = _read_leaves(arguments)
        state = _read_own_tensors(call.owner) | _read_state(call.modules)
        numbers, before = _read_own_numbers(call), _summarize(torch, state)
        signed = {path: _sign_leaf(leaf) for path, leaf in (held | state).items()}
        with self._enter(call, variation):
            with self._watch() as seen:
                result = call.function(*arguments[0], **arguments[1])
            draws = RandomStates.read(torch).digests
            if not self._keeper.repeats:
                names, gradients = self._compute_gradients(call, result, inputs)
                left: Any = result, gradients
            else:
                held_in = (*call.leaves, *state.values())
                names = ROUNDS if any(map(_is_floating, held_in)) else ""
                names += f"; draws {draws}"
                left = result, [its for module in call.modules for its in module.buffers()]
            now = _read_leaves(arguments) | state
            written = {
                path: now.get(path)
                for path in (signed | now)
                if path not in now or signed.get(path) != _sign_leaf(now[path])
                # What is returned tells enough of what may be held otherwise by now.
                if result is None or path not in state
            }
            structure, pending = self._begin_digest((*left, written))
            owners = {id(its): path for path, its in zip(call.paths, held.values(), strict=True)}
            memory = _describe_memory(result, (*held.values(), *state.values()), owners)
            by_now = _read_own_tensors(call.owner) | _read_state(call.modules)
            changed = tuple(_read_own_numbers(call).items() - numbers.items())
            others = tuple(path for path, its in state.items() if by_now.get(path) is not its)
            signs = {path for path, its in state.items() if _sign_leaf(its) != signed[path]}
            after = _summarize(torch, by_now, {*others, *signs})
            # A write through `.data` is not counted in the version of a tensor.
            signs |= {path for path in before.keys() & after.keys() if before[path] != after[path]}
            changed += tuple(its for path, its in after.items() if path in {*others, *signs})
            event = replace(event, structure=f"{structure}{names}", numbers=changed, memory=memory)
            written = tuple(signs.difference(others))
            event = replace(event, written=written, replaced=others, draws=draws)
            event = replace(event, lines=tuple(seen or ()))
            return event, [pending]

    @contextlib.contextmanager
    def _enter(self, call: KeptCall, variation: Variation) -> Generator[None]:
        """Enter the modes and the backend of a variation for a block."""
        torch, modes = self._torch, call.modes
        if variation.gradients is not None:
            modes = modes._replace(gradients=variation.gradients)
        with contextlib.ExitStack() as stack:
            if variation.is_eager:
                stack.enter_context(torch.compiler.set_stance("force_eager"))
            elif not variation.own_backend:
                stack.enter_context(torch_replay.force_backend(torch, "eager"))
            if variation.dtype is not None:
                dtype, held = getattr(torch, variation.dtype), _read_state(call.modules).values()
                stack.enter_context(_hold_others(lambda its: its.to(dtype), held))
            if variation.parameters is not None:
                own = {its for module in call.modules for its in module.parameters()}
                stack.enter_context(_hold_others(variation.parameters, own))
            stack.enter_context(torch_replay.enter_modes(torch, modes))
            yield

    def _begin_digest(self, left: Any) -> tuple[str, PendingDigest]:
        """Begin the digest of what a call left, in float64 where calls are repeated as they were:
        one tolerance for all of them; and describe it as it is."""
        pending = self._digester.begin(left)
        if not self._keeper.repeats:
            return pending.structure, pending
        leaves = trees.flatten(left)[1]
        doubles = [its.double() if _is_floating(its) else its for its in leaves]
        return pending.structure, self._digester.begin(doubles)

    def _make_event(self, varied: VariedCall, *, raised: str | None = None) -> CallVaried:
        """Make the event of a call of which nothing is known but what it raised."""
        kept, call, variation = varied
        kind = call.label, call.number, variation.label
        event = CallVaried(self._t, kept.place, *kind, "", (), raised, 0, step=call.step)
        return replace(event, is_new_size=variation.is_new_size)

    def _build_arguments(self, call: KeptCall, variation: Variation) -> tuple[list[Any], Any]:
        """Build the arguments of a call, and list those that want a gradient."""
        leaves, inputs = list[Any](), list[Any]()
        for index, kept in enumerate(call.leaves):
            value = variation.values.get(index, kept)
            if variation.dtype is not None and _is_floating(value):
                dtype = getattr(self._torch, variation.dtype)
                value = value.detach().to(dtype).requires_grad_(value.requires_grad)
            if index in variation.sizes:
                value = repeat_rows(self._torch, kept.detach(), variation.sizes[index])
                value = value.requires_grad_(kept.requires_grad)
            if variation.changed is not None and variation.changed[0] == index:
                value = variation.changed[1](kept.detach()).requires_grad_(kept.requires_grad)
            if is_tensor(value) and (value.requires_grad or index == variation.wanting):
                is_parameter = issubclass(get_class(value), self._torch.nn.Parameter)
                # Of a double, too, which the other state may make a float of before the call.
                leaf = value.detach().float() if index == variation.wanting else value.detach()
                inputs.append(value if is_parameter else leaf.requires_grad_())
                # What another operation gave may be written in place, as no leaf may.
                value = value if is_parameter else leaf.to(value.dtype, copy=True)
            if value is not kept and is_tensor(value):
                value = torch_replay.copy_marks(kept, value)
            leaves.append(value)
        return inputs, trees.rebuild(call.arguments, iter(leaves))

    def _compute_gradients(
        self, call: KeptCall, result: Any, inputs: list[Any]
    ) -> tuple[str, tuple[Any, ...]]:
        """Compute the gradients of what a call was given and of its parameters; and name the
        results that have any."""
        held = _read_leaves(result).items()
        losses = {path: its for path, its in held if is_tensor(its) and its.requires_grad}
        if not losses or not self._torch.is_grad_enabled():
            return "", ()
        parameters = (one for module in call.modules for one in module.parameters())
        wanted = {id(one): one for one in (*inputs, *parameters) if one.requires_grad}
        try:
            gradients = compute_weighted_gradients(
                self._torch, list(losses.values()), list(wanted.values())
            )
        except RuntimeError as error:
            # Of a loss whose backward pass the call itself has run, in torch's words.
            if "through the graph a second time" not in str(error):
                raise
            return f"; {GRAPH_USED_UP}", ()
        return f"; gradients through {', '.join(path or 'it' for path in losses)}", gradients


def _find_own_raise(error: BaseException) -> tuple[WatchedLines, ...]:
    """Find the `raise` or `assert` of the program's own that raised an error; () for none."""
    trace = error.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    if trace is None or not is_own_frame(trace.tb_frame):
        return ()
    code, at, line = trace.tb_frame.f_code, trace.tb_lasti, trace.tb_lineno
    if dis.opname[code.co_code[at]] != "RAISE_VARARGS":
        return ()
    last = line
    if sys.version_info >= (3, 11):
        last = next(itertools.islice(code.co_positions(), at // 2, None))[1] or line
    return (WatchedLines(os.path.realpath(code.co_filename), tuple(range(line, last + 1))),)


def _read_leaves(arguments: Any) -> dict[str, Any]:
    structure, leaves = trees.flatten(arguments)
    return dict(zip(trees.list_paths(structure), leaves, strict=True))


def _read_state(modules: Iterable[Any]) -> dict[str, Any]:
    """Read the parameters and buffers of modules, by number and name."""
    return {
        f"module {number} {name}": tensor
        for number, module in enumerate(modules)
        for name, tensor in (*module.named_parameters(), *module.named_buffers())
    }


def _read_own_tensors(owner: Any) -> dict[str, Any]:
    """Read the tensors that an object holds itself, as a store of what was seen; one of a single
    element may be a number in the other state."""
    own = get_attributes(owner).items()
    return {f".{name}": its for name, its in own if is_tensor(its) and its.numel() != 1}


def _read_own_numbers(call: KeptCall) -> dict[str, float | None]:
    """Read the numbers of the object that is called; None for one that is not finite."""
    small = read_small(call.owner).items()
    numbers = {name: float(its) for name, its in small if not is_tensor(its) or its.numel() == 1}
    return {name: its if math.isfinite(its) else None for name, its in numbers.items()}


def _summarize(
    torch: Any, tensors: Mapping[str, Any], wanted: Collection[str] = ()
) -> dict[str, tuple[str, float | None]]:
    """Summarize small tensors, and those that are wanted, by name: each with its shape and a number
    that rounding moves by no more than that, magnitudes by place and sign; None where it is not
    finite. Parameters are not small, and rounding moves half precision by more."""
    summed: dict[str, tuple[str, float | None]] = {}
    for path, tensor in tensors.items():
        is_small = tensor.numel() <= MAX_COUNTED and not isinstance(tensor, torch.nn.Parameter)
        if not (is_small or path in wanted) or not torch_api.is_plain_tensor(torch, tensor):
            continue
        if tensor.is_complex() or tensor.element_size() < 4:
            continue
        values = tensor.detach().double().flatten()
        weights = 1 + torch.arange(len(values), device=values.device).double().sin().abs()
        total = float((values.clamp(min=0) * weights - values.clamp(max=0) * (3 - weights)).sum())
        finite = total if math.isfinite(total) else None
        summed[path] = f"{path} {[*tensor.shape]}", finite
    return summed


def _change_held(
    torch: Any, owners: Iterable[Any], name: str, change: Callable[[Any], Any]
) -> None:
    """Change a number or tensor that objects hold themselves, the latter in its memory."""
    for owner in owners:
        own = get_attributes(owner)
        held = own[name] if name in own else read_small(owner)[name]
        if is_tensor(held):
            with torch.no_grad():
                held.copy_(change(held))
        else:
            own[name] = change(held)


def _describe_memory(result: Any, held: Iterable[Any], owners: dict[int, str]) -> tuple[str, ...]:
    """Describe which tensors of a result are written where the caller writes elsewhere: into what
    it gave (`owners`: paths by id) or the module holds, or another element of the same tensor."""
    by_memory = {
        _get_memory(its): owners.get(id(its), "its state") for its in held if is_tensor(its)
    }
    texts: list[str] = []
    for path, its in _read_leaves(result).items():
        if is_tensor(its) and its.numel() > 1:
            if (of := by_memory.get(_get_memory(its))) is not None:
                texts.append(f"{path or 'what it returns'} is in the memory of {of}")
            dims = zip(its.shape, its.stride(), strict=True)
            if any(n > 1 and not stride for n, stride in dims):
                texts.append(f"{path or 'what it returns'} is expanded")
    return tuple(texts)


def _get_memory(tensor: Any) -> Any:
    try:
        return tensor.untyped_storage().data_ptr() or id(tensor)
    except (NotImplementedError, RuntimeError):  # it has none of its own
        return id(tensor)


def _is_floating(leaf: Any) -> bool:
    return is_tensor(leaf) and leaf.is_floating_point()


@contextlib.contextmanager
def _hold_others(change: Callable[[Any], Any], tensors: Iterable[Any]) -> Generator[None]:
    """Let those tensors that are floating hold other data for a block."""
    held = [(its, its.data) for its in tensors if _is_floating(its)]
    try:
        for tensor, data in held:
            tensor.data = change(data)
        yield
    finally:
        for tensor, data in held:
            tensor.data = data


def _sign_leaf(leaf: Any) -> tuple[Any, Any]:
    """Sign a leaf: another one, or the same written to, has another signature."""
    if get_class(leaf) in PLAIN:
        return get_class(leaf), leaf
    counts_writes = is_tensor(leaf) and not leaf.is_inference()
    return id(leaf), leaf._version if counts_writes else None


def _seed(torch: Any) -> None:
    numpy = sys.modules.get("numpy.random")
    seeds: list[Callable[[int], object]] = [random.seed, torch.manual_seed]
    for seed in (*seeds, *(() if numpy is None else (numpy.seed,))):
        seed(SEED)
