"""Executions of a program, as it is and with changes, all in one way: its own, or a shorter one."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from compilediag.certify.calls import compare_calls
from compilediag.certify.judge import judge
from compilediag.certify.points import Certificate, ExecutedState, JudgedPoint
from compilediag.errors import UsageError
from compilediag.receipt.schema.receipt import Receipt
from compilediag.rules.changes import ProgramChange, build_trial_plan
from compilediag.rules.environment_variables import join_values, merge_environment
from compilediag.runs.certify.execute import Pair, decide, execute_both, get_wall_s
from compilediag.runs.certify.recorded import RecordedRun
from compilediag.runs.certify.states import States
from compilediag.runs.trials.trial import Stop
from compilediag_harness.wire import SourceChange, TrialPlan

SLOWER, SLOWER_S = 2.0, 30.0
"""A trial of the search may take so many times the seconds of the program as it is, and so many
more: one that compiles longer than that takes the time of all others."""

DIFFERS = (
    "two executions of the program as it is, with the same seeds, differ, so nothing can be proved "
    "of it: seed what it draws by itself (such as `env.reset(seed=0)`), keep clocks and threads "
    "out of what it computes, and start fix again"
)


@dataclass(frozen=True, slots=True)
class Attempt:
    """Outcome of the program with some changes."""

    changes: frozenset[ProgramChange]
    certificate: Certificate
    before: ExecutedState | None
    after: ExecutedState | None
    """None where it could not be executed."""
    is_whole: bool = False
    """It had the program's own backend, and its own length."""

    @property
    def is_broken(self) -> bool:
        """True where the program with them does not end as it does without."""
        before, after = self.before, self.after
        return before is None or after is None or after.problem != before.problem


@dataclass(slots=True, kw_only=True)
class Executions:
    """Executions of a program in one way."""

    pair: Pair
    """Of the program as it is, on both sides."""
    recorded: RecordedRun | None = None
    """A run that stands for the program as it is, where conditions are the same."""
    before: ExecutedState | None = None
    """The program as it is, once it was executed."""
    run_s: float = 0.0
    """Seconds that an execution takes, as far as is known."""
    attempts: dict[frozenset[ProgramChange], Attempt] = field(
        default_factory=dict[frozenset[ProgramChange], Attempt]
    )
    _known: dict[str, ExecutedState] = field(default_factory=dict[str, ExecutedState])
    """Further executions of the program as it is."""

    def execute_unchanged(self) -> ExecutedState:
        """Execute the program as it is, with the backend "eager".

        Raises:
            UsageError: it could not be started.
            KeyboardInterrupt: the user ended it.
        """
        what = "the program as it is, with the backend eager"
        self.before = self.pair.execute(what, new=False)
        self.run_s = get_wall_s(self.before.receipt)
        self.pair.limit_s = SLOWER * self.run_s + SLOWER_S
        return self.before

    def find_broken(self, changes: Sequence[ProgramChange]) -> Attempt | None:
        """Find an attempt that failed with the last of some changes, or another padding of the same
        function, and with no others than these."""
        own = [change.pads or change for change in changes]
        for known in (attempt for attempt in self.attempts.values() if attempt.is_broken):
            there = {change.pads or change for change in known.changes}
            if own[-1] in there and there <= {*own}:
                return known
        return None

    def attempt(
        self,
        changes: Sequence[ProgramChange],
        edits: Sequence[SourceChange],
        what: str,
        is_promising: Callable[[Receipt, Receipt], bool],
    ) -> Attempt:
        """Execute the program with changes, and judge it; `edits`: its files with them. Further
        executions that would decide something are made where the two receipts are promising.

        Raises:
            Stop: the program differs from itself.
            KeyboardInterrupt: the user ended it.
        """
        pair, key = self._make_pair(changes, edits), frozenset(changes)
        before, after = self.before, None
        try:
            if before is None:
                before, after, why = execute_both(pair, self.recorded, what)
                self.before = before if why else None
            else:
                after = pair.execute(what, new=True)
            if is_promising(before.receipt, after.receipt) or pair.problems:
                certificate, before, after = decide(pair, before, after, self._known)
            else:
                certificate = judge(before, after, pair.change, varied=not pair.options.no_vary)
            self._require_same_again(pair, before, after)
        except UsageError as error:
            certificate = Certificate((JudgedPoint("program", "fails", str(error)),))
        self.run_s = max(self.run_s, 0.0 if after is None else get_wall_s(after.receipt))
        attempt = Attempt(key, certificate, before, after, pair.backend is None)
        self.attempts[key] = attempt
        return attempt

    def _require_same_again(self, pair: Pair, before: ExecutedState, after: ExecutedState) -> None:
        """Require that the program does the same when it is executed again: in a short run, whose
        backend rounds alike whatever is compiled, once results differ from the first call on.

        Raises:
            Stop: it does not.
        """
        calls = compare_calls(before.timeline, after.timeline)
        is_other = calls.mismatch is not None or calls.at_start
        can_repeat = pair.backend is not None and "again" not in self._known
        if can_repeat and is_other and before.problem == after.problem:
            what = "the program as it is once more: does it differ by itself?"
            self._known["again"] = pair.execute(what, new=False)
        if again := self._known.get("again"):
            calls = compare_calls(before.timeline, again.timeline)
            if not calls.equal:
                raise Stop(f"{DIFFERS}; {calls.mismatch or calls.difference}")

    def _make_pair(self, changes: Sequence[ProgramChange], edits: Sequence[SourceChange]) -> Pair:
        tree = dict(self.pair.states.tree)
        edited = {os.path.realpath(edit.file): edit.text.encode() for edit in edits}
        for path in edited.keys() - tree.keys():  # outside of the folder
            with open(path, "rb") as stream:
                tree[path] = stream.read()
        pairs = join_values(pair for change in changes for pair in change.variables)
        states = replace(
            self.pair.states,
            tree=tree,
            before=tree,
            after={**tree, **edited},
            variables=merge_environment(pairs, self.pair.program.variables),
            plan=build_trial_plan(changes),
        )
        return replace(
            self.pair,
            states=states,
            change=states.change,
            problems=list[str](),
            written=set[str](),
            read=None,
        )


def make_unchanged_states(tree: Mapping[str, bytes]) -> States:
    """Make the two states of a program that nobody has changed so far."""
    return States(
        base="the program as it is",
        new="the program with a change",
        tree=tree,
        before=tree,
        after=tree,
        variables={},
        plan=TrialPlan(),
    )
