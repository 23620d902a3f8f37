"""`compilediag gate`: judges receipts by limits and the checked-in baseline, and two command lines
by their time."""

from __future__ import annotations

import os
import shlex
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from compilediag.commands.receipts import LaneReceipt, load, shown_path, suffix_for
from compilediag.commands.subcommand import read_defaults, subcommand
from compilediag.commands.terminal import render_options, write, write_stderr
from compilediag.compare.gate.ab import (
    MIN_ROUNDS,
    ROUNDS,
    SLOWER,
    ClockComparison,
    CommandRun,
    require_scipy,
    timings,
)
from compilediag.compare.gate.baseline import LOCK_NAME, Baseline, read
from compilediag.compare.gate.baseline_file import find_lock, read_lock, write_lock
from compilediag.compare.gate.inconclusive import CodeComparison, compare_code
from compilediag.compare.gate.judgement import Judgement, plural
from compilediag.compare.gate.limits import EXAMPLE, Limit, parse_limits
from compilediag.errors import EXIT_GATE, EXIT_OK, EXIT_USAGE, UsageError
from compilediag.option_fields import Given, argument, flag, option, toml_keys
from compilediag.receipt.contradictions import refuse_contradictions
from compilediag.receipt.schema.receipt import Receipt

if TYPE_CHECKING:
    from compilediag.compare.gate.judge import Recorded


@dataclass(frozen=True, slots=True)
class GateOptions:
    """What to judge, by what, and where to write it."""

    receipts: tuple[str, ...] = argument(
        default=(), metavar="[RECEIPT]...", nargs=-1, type=click.Path()
    )
    baseline: str | None = option(
        "--baseline FILE", "The baseline; default: compilediag.lock.json, if there."
    )
    base: str | None = option(
        "--base REF", "Show what this baseline allows and that of the branch or commit does not."
    )
    lane: str | None = option("--lane NAME", "Lane of the baseline; default: the receipt's.")
    limits: tuple[Limit, ...] = option(
        "--fail-on EXPR",
        f"Limits such as '{EXAMPLE}'.",
        default=(),
        check=lambda key, value: parse_limits(value),
    )
    strict: bool = flag("--strict-improvement", "Fail for improvements as well.")
    require_proved_fix: bool = flag(
        "--require-proved-fix",
        "Fail for each finding without a change proved by `compilediag fix`.",
        toml=bool,
        tables=("gate",),
    )
    own_code_only: bool = flag("--own-code-only", "Judge only your own code.")
    any_code: bool = flag(
        "--any-code", "Also judge receipts of other code than what is checked out."
    )
    update: bool = flag("--update", "Record the receipts in the baseline.")
    reason: str | None = option("--reason TEXT", "With --update: why the new items are acceptable.")
    reasons: tuple[tuple[str, str], ...] = option(
        "--reason-for ITEM TEXT",
        "With --update: the same for one item; ITEM is part of its name.",
        default=(),
        nargs=2,
        multiple=True,
    )
    formats: tuple[str, ...] = option(
        "--format NAME[=FILE]",
        "terminal, github, gitlab, sarif, junit, md, json.",
        default=(),
        multiple=True,
    )
    as_json: bool = flag("--json", "Print the judgement as JSON; the same as --format json.")
    ab: tuple[str, str] | None = option(
        "--ab CMD_A CMD_B", "Measure two command lines in turn; fail if B is slower.", nargs=2
    )
    rounds: int | None = option(
        "--rounds",
        f"Pairs that --ab measures; default: {ROUNDS}.",
        type=click.IntRange(min=MIN_ROUNDS),
    )

    def refuse_contradictions(self) -> None:
        """Raise a UsageError where two options contradict each other."""
        judging = {
            "--fail-on": self.limits,
            "--strict-improvement": self.strict,
            "--require-proved-fix": self.require_proved_fix,
            "--own-code-only": self.own_code_only,
            "--format": self.formats,
            "--json": self.as_json,
            "--ab": self.ab,
            "--base": self.base,
        }
        used = [name for name, value in judging.items() if value]
        if self.update and used:
            raise UsageError(f"--update records and does not judge: leave out {used[0]}")
        if (self.reason is not None or self.reasons) and not self.update:
            raise UsageError("--reason goes with --update: it says why the baseline may change")
        given = [*([] if self.reason is None else [self.reason]), *(t for _, t in self.reasons)]
        if not all(text.strip() for text in given):
            raise UsageError("--reason is empty: explain why the new items are acceptable")
        if self.rounds is not None and self.ab is None:
            raise UsageError("--rounds goes with --ab")


TOML_KEYS = {"gate": toml_keys(GateOptions, "gate")}
"""Keys of [tool.compilediag.gate]."""


def _pyproject_defaults(given: Given) -> Mapping[str, Any]:
    """Read what pyproject.toml says of judging receipts; nothing where none is judged."""
    named = any(given[name] for name in ("receipts", "baseline", "limits", "require_proved_fix"))
    if given["update"] or (given["ab"] and not named):
        return {}
    return read_defaults(Path.cwd(), TOML_KEYS).get("gate", {})


@subcommand(
    "gate",
    GateOptions,
    table=_pyproject_defaults,
    examples="""\
  compilediag gate --fail-on 'recompiles>0,graph_breaks>2'   limits for the latest run
  compilediag gate --update --reason "warm-up"               record it in compilediag.lock.json
  compilediag gate                                           judge by compilediag.lock.json
  compilediag gate --format sarif=gate.sarif                 also write a file for CI
  compilediag gate --require-proved-fix                      every finding needs a proved change
  compilediag gate --ab 'python old.py' 'python new.py'      is the second slower?
""",
)
def command(options: GateOptions) -> int:
    """Judge receipts by limits and by a checked-in baseline.

    RECEIPT is a receipt file or the folder of a run; the default is the latest run. Several
    receipts are several lanes. Counts are judged; seconds only by --ab or a limit such as
    'compile_s>60'.

    The exit code is 0 if everything passes, 3 if something fails, and 2 if nothing can be judged:
    the receipt is blind, the baseline lacks the lane, or the file is no receipt.
    """
    options.refuse_contradictions()
    if options.update:
        reason = (options.reason or "").strip() or None
        update(lanes_of(options), baseline_path(options), reason, options.reasons)
        return EXIT_OK
    codes: list[int] = []
    judged = options.receipts or options.baseline or options.limits or options.require_proved_fix
    if options.ab is None or judged:
        codes += _judge(options)
    if options.ab is not None:
        codes.append(_measure(*options.ab, options))
    # A failure comes before what cannot be judged; neither is a pass.
    return next((code for code in (EXIT_GATE, EXIT_USAGE) if code in codes), EXIT_OK)


def lanes_of(options: GateOptions) -> tuple[LaneReceipt, ...]:
    """Load a configuration for each receipt; the latest run without one.

    Raises:
        UsageError: two receipts would be one configuration.
        ReceiptContradictory: a receipt contradicts itself.
        ReceiptNotFound, ReceiptUnreadable: as `load_receipt`.
    """
    from compilediag.runs.checkout import working_tree

    name = options.lane
    if name is not None and len(options.receipts) > 1:
        raise UsageError("--lane names the lane of one receipt: give one, or leave out --lane")
    if name is not None and not name.strip():
        raise UsageError("--lane is empty: say the lane's name")
    found: dict[str, LaneReceipt] = {}
    for where in options.receipts or (None,):
        file, receipt = load(where)
        refuse_contradictions(receipt, file)
        ran = receipt.header.provenance
        here = working_tree(ran, os.getcwd(), os.environ, baseline_path(options))
        compared = compare_code(ran, here)
        # The latest run, which nobody has named, must be known to be of this code: a hook passes on
        # no old evidence.
        reasons = compared.reasons or (compared.notices if where is None else ())
        code = CodeComparison(reasons, () if reasons else compared.notices)
        if options.any_code:
            code = CodeComparison(notices=(*compared.notices, *compared.reasons))
        lane = LaneReceipt(name or receipt.header.lane.name, receipt, where, code)
        other = found.setdefault(lane.name, lane)
        if other is not lane:
            raise UsageError(
                f"{other.where} and {where} are both of the lane {lane.name!r}: judge them one "
                "after the other, or name lanes apart with `compilediag run --name`"
            )
    return tuple(found.values())


def baseline_path(options: GateOptions) -> str | None:
    """Find the baseline: the file that was named, else that of this folder or repository."""
    return options.baseline if options.baseline is not None else find_lock(os.getcwd())


def _judge(options: GateOptions) -> list[int]:
    """Judge the receipts and return an exit code for each. Everything that can be wrong with the
    command line is found before anything is written."""
    from compilediag.commands.gate_output import outputs_of, show
    from compilediag.compare.gate.judge import enlarged, judge

    outputs = outputs_of((*options.formats, *(["json"] if options.as_json else [])))
    path = baseline_path(options)
    if path is None and not options.limits and not options.require_proved_fix:
        raise UsageError(
            "there is nothing to judge by: no compilediag.lock.json here or above. Type "
            "`compilediag gate --update` to record the latest run as the baseline, or give limits: "
            "`compilediag gate --fail-on 'recompiles>0'`"
        )
    baseline = read_lock(path) if path is not None else Baseline()
    base = None
    if options.base is not None:
        from compilediag.runs.checkout import file_at

        if path is None:
            raise UsageError("--base compares the baseline: there is no compilediag.lock.json")
        text = file_at(options.base, path)
        base = Baseline() if text is None else read(text, f"{options.base}:{shown_path(path)}")
    lanes = lanes_of(options)
    judgements: list[Judgement] = []
    for lane in lanes:
        known, larger = baseline.lane(lane.name), ()
        if base is not None and known is not None:
            larger = enlarged(base.lane(lane.name), known, options.base or "")
        judgements.append(
            judge(
                lane.receipt,
                limits=options.limits,
                baseline=known,
                baseline_name=shown_path(path) if path is not None else None,
                strict=options.strict,
                own_code_only=options.own_code_only,
                lane=lane.name,
                code=lane.code,
                enlarged=larger,
                require_proved_fix=options.require_proved_fix,
            )
        )
    show(judgements, outputs)
    if "terminal" in outputs.shown:
        write(f"\n  next: {_next(judgements, lanes)}\n")
    return [
        EXIT_OK if item.passed else EXIT_GATE if item.judged else EXIT_USAGE for item in judgements
    ]


def _next(judgements: Sequence[Judgement], lanes: Sequence[LaneReceipt]) -> str:
    """Choose the command that helps most now."""
    better: list[str] = []
    for judgement, lane in zip(judgements, lanes, strict=True):
        suffix, failures = suffix_for(lane.where), judgement.failures
        if lane.code.reasons:
            return f"compilediag run {_target(lane.receipt)}"
        if failures and failures[0].kind == "unproved":
            tried = [item.id for item in lane.receipt.findings if item.fix.refused]
            finding = failures[0].finding
            if finding not in tried:  # the latest run's by its number
                number = finding.removeprefix("F") if finding and lane.where is None else ""
                return f"compilediag fix {number or _target(lane.receipt)}"
        found = next((item.finding for item in failures if item.finding), None)
        if judgement.judged and found:
            return f"compilediag explain {found.removeprefix('F')}{suffix}"
        if failures:
            return f"compilediag show{suffix}"
        better += [suffix] if judgement.improvements else []
    if better:
        return f"compilediag gate --update{better[0]}"
    return f"compilediag show{suffix_for(lanes[0].where)}"


def _target(receipt: Receipt) -> str:
    run = receipt.header.run
    return ("" if run.redactions.count else shlex.join(run.argv_redacted)) or "TARGET"


def _measure(a: str, b: str, options: GateOptions) -> int:
    """Measure two command lines in turns and return the exit code; a terminal shows each pair."""
    from compilediag.commands.gate_output import outputs_of
    from compilediag.runs.tools.ab import measure  # needs what only Unix has

    def progress(index: int, a: CommandRun, b: CommandRun) -> None:
        write_stderr(f"  pair {index}: A {a.wall_s:.3f} s, B {b.wall_s:.3f} s\n")

    require_scipy()
    rounds = options.rounds or ROUNDS
    found = timings(*measure(a, b, rounds, progress if sys.stderr.isatty() else None))
    for_people = outputs_of(options.formats).for_people
    (write if for_people else write_stderr)(report(a, b, rounds, found))
    if not found:
        return EXIT_USAGE
    return EXIT_GATE if any(item.slower for item in found) else EXIT_OK


def report(a: str, b: str, rounds: int, found: tuple[ClockComparison, ...]) -> str:
    """Render what was measured as text."""
    screen = render_options()
    slower = [item for item in found if item.slower]
    words = f"B is slower ({' and '.join(item.clock for item in slower)} time)"
    verdict = words if slower else "B is not slower" if found else "too short to be measured"
    sign = screen.sign("bad" if slower else "good" if found else "blind")
    lines = [f"{sign} {verdict}{screen.dot}{rounds} pairs, interleaved"]
    lines += [f"  A: {screen.text(a)}", f"  B: {screen.text(b)}"]
    lines += [
        f"  {item.clock:<4} A {item.a_s:.3f} s, B {item.b_s:.3f} s: {item.change:+.1%} "
        f"[{item.low:+.1%}, {item.high:+.1%}]; a slowdown of {item.smallest:.1%} would have been "
        "found four times in five"
        for item in found
    ]
    lines.append(f"  slower is said where the lower bound is above {SLOWER:+.0%}")
    return "\n".join(lines) + "\n"


# --- --update ------------------------------------------------------------------------------------

_NAMED = 5


def update(
    lanes: Sequence[LaneReceipt],
    path: str | None,
    reason: str | None,
    reasons: Sequence[tuple[str, str]],
) -> None:
    """Write the configurations into the baseline's file, made where there is none. `reason` says
    why what is new may be there; `reasons` have a part of an item's name, and the reason for it.

    Raises:
        UsageError: a receipt must not be recorded, or a reason is needed; nothing is written.
        BaselineUnreadable: the file is no baseline; it is left as it is.
    """
    from compilediag.compare.gate.judge import recorded

    file = path if path is not None else os.path.join(os.getcwd(), LOCK_NAME)
    name = shown_path(file)
    lock = read_lock(file) if os.path.lexists(file) else Baseline()
    made = [
        recorded(
            lane.receipt,
            lock.lane(lane.name),
            reason=reason,
            reasons=reasons,
            lane=lane.name,
            code=lane.code,
        )
        for lane in lanes
    ]
    _refuse(made, reasons, name)
    written = write_lock(file, lock.with_lanes(item.lane for item in made))
    lines = [f"Wrote {name}" if written else f"{name} holds this already"]
    for item in made:
        lane, silent = item.lane, len(item.without_reason)
        allowed = {
            "causes": len(lane.causes),
            "graph_breaks": len(lane.breaks),
            "eager_fallbacks": len(lane.fallbacks),
        }
        shown = f"{_some(lane.counts)}; allowed: {_some(allowed)}"
        doubtful = f" ({silent} without a reason)" if silent else ""
        lines.append(f"  lane {lane.name}: {shown}{doubtful}")
    named = "" if path is None else os.path.basename(path)
    option = "" if named in ("", LOCK_NAME) else f" --baseline {shlex.quote(name)}"
    following = f"  next: git add {shlex.quote(name)}, and in CI: compilediag gate{option}"
    screen = render_options()
    write("\n".join(screen.text(line, 1000) for line in (*lines, "", following)) + "\n")


def _refuse(made: Sequence[Recorded], reasons: Sequence[tuple[str, str]], name: str) -> None:
    for item in made:
        lane = item.lane.name
        if item.inconclusive:
            raise UsageError(
                f"the run of lane {lane!r} is not recorded, because {'; '.join(item.inconclusive)};"
                " run it again"
            )
        if item.unexplained:
            raise UsageError(
                f"{name} would newly allow in lane {lane!r}: {_names(item.unexplained)}; say why "
                'they are all right: --reason "TEXT" (nothing was written)'
            )
    used = {each for item in made for each in item.explained}
    for part, _ in reasons:
        if part not in used:
            raise UsageError(
                f"--reason-for {part!r} names nothing that the runs would allow; they allow: "
                f"{_names([each for item in made for each in item.allowed])} (nothing was written)"
            )


def _names(items: Sequence[str]) -> str:
    more = len(items) - _NAMED
    shown = ", ".join(items[:_NAMED]) or "nothing"
    return shown + (f" and {more} more" if more > 0 else "")


def _some(counts: Mapping[str, int]) -> str:
    """Format the counts that are not 0: "2 frames, 1 graph break"."""
    parts = [
        plural(count, name.removesuffix("s").replace("_", " "))
        for name, count in counts.items()
        if count
    ]
    return ", ".join(parts) or "nothing"
