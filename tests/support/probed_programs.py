"""Programs that exist only in tests: what a supervised run of them would give, without running."""

import os
import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from timelines import attempt, process, recompile

from compilediag.receipt.assemble import build_receipt
from compilediag.receipt.file import write_receipt
from compilediag.receipt.run_metadata import RunMetadata
from compilediag.rules.diagnose import diagnose
from compilediag.runs.supervised.child import Outcome
from compilediag.runs.supervised.run_options import RunOptions
from compilediag.timeline.recorded import CadenceGroup
from compilediag.timeline.timeline import Compile, Step, Timeline
from compilediag_harness.user_api.cadence import format_variable_name, parse_setting

USUAL_S = 10e-3


@dataclass(frozen=True)
class Program:
    """A training loop with periodic work, as its environment and its arguments set it.

    Each group costs `metric_s` when it fires, and compiles for half a second when it fires first.
    """

    groups: Mapping[str, int] = field(default_factory=dict)
    """Groups declared in the code, with their own periods."""
    steps: int = 60
    asked: bool = True
    """It asks its groups whether they are due."""
    metric_s: float = 5e-3
    compiles: bool = True
    reads: Callable[[Sequence[str], Mapping[str, str]], Mapping[str, int]] = lambda w, e: {}
    """Periods that it takes from its arguments or its environment, by name."""
    status: Callable[[Sequence[str], Mapping[str, str]], str] = lambda w, e: "complete"
    first_number: int = 0

    def run(self, words: Sequence[str], options: RunOptions, environ: Mapping[str, str]) -> Outcome:
        """In place of `compilediag.runs.supervised.run.run`."""
        status = self.status(words, environ)
        steps = min(self.steps, options.steps or self.steps)
        steps = steps if status == "complete" else min(steps, 20)
        timeline = self._timeline(words, environ, steps)
        code = {"complete": 0, "interrupted": 130}.get(status, 1)
        facts = RunMetadata(
            receipt_id="0" * 26,
            created_at_utc="2026-01-01T00:00:00Z",
            status=status,
            exit_code=code,
            wall_s=3.0,
            argv=tuple(words),
            failure_reason=None if status == "complete" else "RuntimeError: planted",
        )
        receipt = build_receipt(timeline, diagnose(timeline), facts)
        assert options.output is not None
        os.makedirs(options.output)
        path = os.path.join(options.output, "receipt.json")
        from pathlib import Path

        write_receipt(receipt, Path(path))
        return Outcome(code, options.output, receipt, path, (), timeline)

    def _timeline(self, words: Sequence[str], environ: Mapping[str, str], steps: int) -> Timeline:
        fires = dict(self._code_fires(environ, steps))
        outside = {
            name: tuple(range(0, steps, every))
            for name, every in self.reads(words, environ).items()
        }
        compiles = self._compiles({**fires, **outside})
        chance = random.Random(steps + len(words))
        made: list[Step] = []
        for number in range(steps):
            compile_s = sum(item.seconds for item in compiles if item.step == number)
            hits = sum(number in places for places in (*fires.values(), *outside.values()))
            wall = USUAL_S + hits * self.metric_s + compile_s + abs(chance.gauss(0, 5e-5))
            made.append(Step(0, number, number + 1.0, wall, None, None, None, compile_s))
        cadences = tuple(
            CadenceGroup(
                *(0.0, 0, name),
                every=_setting(name, own, environ)[0],
                offset=_setting(name, own, environ)[1],
                own_every=own,
                fires=fires[name],
                shift=self.first_number if self.asked else None,
            )
            for name, own in self.groups.items()
        )
        return Timeline(
            processes=(process(),),
            compiles=tuple(compiles),
            recompiles=tuple(item.recompile for item in compiles if item.recompile),
            steps=tuple(made),
            cadences=cadences,
        )

    def _code_fires(self, environ: Mapping[str, str], steps: int):
        for name, own in self.groups.items():
            every, offset = _setting(name, own, environ)
            numbers = range(self.first_number, self.first_number + steps)
            due = every > 0 and self.asked
            yield (
                name,
                tuple(n - self.first_number for n in numbers if due and n % every == offset),
            )

    def _compiles(self, fires: Mapping[str, tuple[int, ...]]) -> list[Compile]:
        found = [attempt("0/0", step=0, seconds=2.0)]
        for number, places in enumerate(fires.values(), start=1):
            after = [place for place in places if place > 0]
            if after and self.compiles:
                cause = recompile(f"0/{number}", step=after[0])
                found.append(
                    attempt(
                        f"0/{number}", kind="recompile", step=after[0], seconds=0.5, cause=cause
                    )
                )
        return found


def _setting(name: str, own: int, environ: Mapping[str, str]) -> tuple[int, int]:
    told = environ.get(format_variable_name(name))
    return (own, 0) if told is None else parse_setting(told)


def option(words: Sequence[str], name: str, default: int) -> int:
    """The value of `--name VALUE` on a command line."""
    return int(words[words.index(name) + 1]) if name in words else default
