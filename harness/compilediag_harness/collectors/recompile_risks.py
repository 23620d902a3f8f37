"""Risks that a step leaves for the next call: false guards, and hooks that never run.

Guards that are already false after a step in which something compiled: complete for state that the
compiled code changes itself; blind to a flag that other code flips between steps, and to guards on
arguments, whose next values are not known.

Hooks and methods put on a compiled module after its compile, which no guard sees: they never run.
Looked for at growing intervals. Hooks are read, never wrapped: frames are guarded on these objects.

Effects of the code that a graph lacks from the start, with no word from torch.
"""

from __future__ import annotations

import time
import types
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, cast

from compilediag_harness.base.object_graph import WeakByIdentity
from compilediag_harness.base.session import Session
from compilediag_harness.blame import source_locations
from compilediag_harness.blame.writers import ReachableNames
from compilediag_harness.collectors.false_guards import describe_entry
from compilediag_harness.collectors.guard_facts import Baselines
from compilediag_harness.collectors.leaf_checks import ExaminedEntry, LeafChecks
from compilediag_harness.torch_internals import torch_api, torch_calls, torch_guards
from compilediag_harness.torch_internals.torch_compiles import get_attempt, get_compile_id
from compilediag_harness.torch_internals.torch_graphs import SETS_STATE
from compilediag_harness.wire import EffectLost, HazardsChecked, Location, UnguardedChanged, clip

_MAX_EFFECTS = 64
BUDGET_S = 0.05
"""CPU seconds of all checks after one step: what is left out does not depend on the load."""


class RecompileRiskCollector:
    """Checks whether a cache entry of every freshly compiled frame still holds."""

    def __init__(self, session: Session, baselines: Baselines) -> None:
        self._session = session
        self._baselines = baselines
        self._recheck: list[types.CodeType] = []

    def handle_step_end(self, step: int, compiled: bool) -> None:
        """Checks the frames compiled in this step, and once more those that were armed in the step
        before: other code may have disarmed them meanwhile."""
        codes = [*self._baselines.take_fresh(), *self._recheck] if compiled or self._recheck else []
        self._recheck = []
        started, deadline = time.monotonic(), time.thread_time() + BUDGET_S
        for code in dict.fromkeys(codes):
            if self._check_code(code, step, deadline):
                self._recheck.append(code)
        if codes:
            self._session.collector_s += time.monotonic() - started

    def _check_code(self, code: types.CodeType, step: int, deadline: float) -> bool:
        session, started = self._session, time.monotonic()
        baseline = self._baselines.get_newest(code)
        if baseline is None or source_locations.is_library(code.co_filename):
            return False
        where, over = source_locations.get_location(code), f"over {BUDGET_S * 1e3:.0f} ms"
        if time.thread_time() >= deadline:
            session.emit(HazardsChecked(session.now(), step, where, (), 0, 0, 0.0, over))
            return False
        entries = torch_guards.get_cache_entries(code)
        if not entries:
            return False
        # Strong references, for this check alone: they end with the function.
        roots = {name: ref() for name, (ref, _) in baseline.roots.items()}
        f_locals = {name: value for name, value in roots.items() if value is not None}
        # A guard on a local that is not at hand cannot be evaluated: `unevaluated` counts it.
        checks, facts = LeafChecks(f_locals, deadline, len(entries)), self._baselines.get_facts
        looks = (checks.examine(its, facts(code, str(its.compile_id)).lengths) for its in entries)
        examined = next(looks)
        if examined.checked == 0:
            return False  # a dead entry, as at the end of the process: nothing can be concluded
        diff = describe_entry(examined, code, self._baselines, ReachableNames())
        armed = tuple(its for its in diff.guards if _is_kept(its.source, its.leaf))
        skipped = None if examined.finished else over
        # As those of another instance of a module, or of a value that came back.
        if armed and any(map(_may_serve, looks)):
            skipped = "another entry may serve"
        session.emit(
            HazardsChecked(
                *(session.now(), step, where, armed, diff.checked, diff.unevaluated),
                seconds=time.monotonic() - started,
                skipped=skipped,
            )
        )
        return bool(armed)


def _is_kept(source: str, kind: str) -> bool:
    """False of a guard on what the next call sets again: global modes, shapes of arguments."""
    return source not in ("", "L", "G") and kind != "SHAPE"


def _may_serve(examined: ExaminedEntry) -> bool:
    """True if no guard of an entry is known that stays false; a dead one has none at all."""
    is_false = any(_is_kept(leaf.source, leaf.kind) for leaf in examined.false)
    return not is_false and (examined.checked > 0 or not examined.finished)


_FORWARD = ("forward_hook", "forward_pre_hook")
_MAX_MODULES = 5000


@dataclass(slots=True)
class _Snapshot:
    """A compiled module's hooks and methods right after the step that compiled it."""

    frame: Location
    root_forward: bool
    """The frame is the root module's own forward: hooks of the root run outside it."""
    hooks: dict[str, tuple[int, int]] = field(default_factory=dict[str, tuple[int, int]])
    methods: dict[tuple[type, str], Any] = field(default_factory=dict[tuple[type, str], Any])
    global_hooks: tuple[int, int] = (0, 0)


class UnguardedChangeCollector:
    """Compares compiled modules with what they were when they were compiled."""

    def __init__(self, session: Session, module_type: type) -> None:
        self._session = session
        self._module_type = module_type
        self._snapshots = WeakByIdentity[Any, _Snapshot]()
        self._fresh = WeakByIdentity[Any, types.CodeType]()
        """Modules that the call in progress compiled code for."""
        self._forget_calls: Callable[[], None] | None = None
        self._reported: set[tuple[str, str]] = set()
        self._next_look = 1

    def take_snapshots(self, code: types.CodeType, scope: dict[str, Any]) -> None:
        """A frame was compiled: its module arguments are as the graph assumes them now."""
        deadline = time.thread_time() + BUDGET_S
        for value in scope.values():
            members = cast(Sequence[Any], value) if isinstance(value, (tuple, list)) else (value,)
            for module in members[:_MAX_MODULES]:
                if isinstance(module, self._module_type):
                    self._snapshots[module] = self._take_snapshot(module, code, deadline)
                    self._fresh[module] = code
        if len(self._fresh) and self._forget_calls is None:
            end = self._take_snapshots_again
            self._forget_calls = torch_calls.watch_outermost_calls(lambda _key: None, end)

    def _take_snapshots_again(self, _key: int) -> None:
        """The call that compiled ends: what it did itself, such as to register the hooks with which
        transformers captures outputs, is no change after it."""
        self.uninstall()
        deadline = time.thread_time() + BUDGET_S
        fresh, self._fresh = self._fresh.items(), WeakByIdentity[Any, types.CodeType]()
        with self._session.catch_faults("hooks and methods"):
            for module, code in fresh:
                self._snapshots[module] = self._take_snapshot(module, code, deadline)

    def uninstall(self) -> None:
        """Stop waiting for the end of a call."""
        forget, self._forget_calls = self._forget_calls, None
        if forget is not None:
            forget()

    def handle_step_end(self, step: int, compiled: bool) -> None:
        """Looks at steps 1, 2, 4, 8... since that is when a late hook shows at little cost."""
        if step >= self._next_look:
            self._next_look = max(2 * self._next_look, step + 1)
            self.check_modules(step)

    def check_modules(self, step: int) -> None:
        deadline = time.thread_time() + BUDGET_S
        for root, before in self._snapshots.items():
            if time.thread_time() > deadline:
                return
            self._compare_module(root, before, step)

    def _take_snapshot(self, root: Any, code: types.CodeType, deadline: float) -> _Snapshot:
        # `Module.__call__` runs hooks of the root outside a compiled `forward`: they still work.
        own_forward = getattr(root.__class__.forward, "__code__", None) is code
        snapshot = _Snapshot(source_locations.get_location(code), own_forward)
        owners: set[type] = set()
        for count, (path, module) in enumerate(root.named_modules()):
            if count >= _MAX_MODULES or time.thread_time() > deadline:
                break
            snapshot.hooks[path] = torch_api.count_hooks(module)
            owners.update(module.__class__.__mro__)
        # Methods of classes are looked up at trace time: code that is swapped later never runs.
        for owner in owners:
            if owner is not object and not owner.__module__.startswith("torch."):
                for name, value in vars(owner).items():
                    if isinstance(value, types.FunctionType):
                        snapshot.methods[owner, name] = value.__code__
        snapshot.global_hooks = torch_api.count_hooks()
        return snapshot

    def _compare_module(self, root: Any, before: _Snapshot, step: int) -> None:
        location_of = source_locations.get_location
        for path, module in root.named_modules():
            had = before.hooks.get(path)
            if had is None or (path == "" and before.root_forward):
                continue
            # Only a module without hooks is unguarded: torch guards the hooks that were there.
            # Read from the registries, never called: the hooks are the program's.
            for kind, none, some in zip(_FORWARD, had, torch_api.count_hooks(module), strict=True):
                if none == 0 and some > 0:
                    hook = next(iter(getattr(module, f"_{kind}s").values()))
                    code = getattr(hook, "__code__", None)
                    where = None if code is None else location_of(code)
                    self._emit_change(kind, path or type(root).__name__, where, before, step)
        for (owner, name), code in before.methods.items():
            now = getattr(vars(owner).get(name), "__code__", None)
            if now is not None and now is not code:
                target = f"{owner.__name__}.{name}"
                self._emit_change("class_method", target, location_of(now), before, step)
        if before.global_hooks == (0, 0) and any(torch_api.count_hooks()):
            self._emit_change("global_forward_hook", "torch.nn.modules.module", None, before, step)

    def _emit_change(
        self, what: str, target: str, where: Location | None, before: _Snapshot, step: int
    ) -> None:
        session = self._session
        if (what, target) not in self._reported:
            self._reported.add((what, target))
            session.emit(UnguardedChanged(session.now(), step, before.frame, what, target, where))


class LostEffectCollector:
    """Collects effects that the attempt in progress loses, and reports those of guarded code."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self._attempt: tuple[str, int] | None = None
        self._effects: dict[tuple[str, str, str, Location | None], None] = {}

    def record(self, source: str, operation: str, kind: str, where: Location | None) -> None:
        """Record what `torch_graphs` watches; never raises."""
        with self._session.catch_faults("lost effect"):
            attempt = get_compile_id(), get_attempt()
            if attempt != self._attempt:  # a restart traces anew, and may find none
                self._attempt, self._effects = attempt, {}
            if len(self._effects) < _MAX_EFFECTS:
                self._effects[clip(source, 512), clip(operation, 64), kind, where] = None

    def report(self, compile_id: str) -> None:
        """Guarded code exists. Where the code sets the state of a `random.Random` itself, draws may
        repeat in eager too: nothing is said of that one."""
        effects, session = self._effects, self._session
        own = {source for source, operation, *_ in effects if operation in SETS_STATE}
        if self._attempt == (compile_id, get_attempt()):
            for effect in effects:
                if effect[0] not in own:
                    session.emit_in_step(EffectLost, compile_id, session.epoch, *effect)
        self._effects = {}
