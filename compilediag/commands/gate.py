"""`compilediag gate`: judges receipts by limits and a baseline."""

from __future__ import annotations

import os
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from compilediag.commands.receipts import ConfigReceipt, format_suffix, load_receipt, shorten_path
from compilediag.commands.subcommand import read_defaults, subcommand
from compilediag.commands.terminal import get_render_options, write
from compilediag.compare.gate.baseline import LOCK_NAME, Baseline, parse_lock
from compilediag.compare.gate.baseline_file import find_lock, read_lock, write_lock
from compilediag.compare.gate.inconclusive import CodeComparison, compare_code
from compilediag.compare.gate.judgement import Judgement, pluralize
from compilediag.compare.gate.limits import EXAMPLE, Limit, parse_limits
from compilediag.errors import EXIT_GATE, EXIT_OK, EXIT_USAGE, UsageError
from compilediag.option_fields import Given, argument, collect_toml_keys, flag, option
from compilediag.receipt.contradictions import refuse_contradictions
from compilediag.views.lookups import format_target

if TYPE_CHECKING:
    from compilediag.compare.gate.judge import RecordedBaseline


@dataclass(frozen=True, slots=True)
class GateOptions:
    """The receipts to judge, by what, and where to write it."""

    receipts: tuple[str, ...] = argument(
        default=(), metavar="[RECEIPT]...", nargs=-1, type=click.Path()
    )
    baseline: str | None = option(
        "--baseline FILE", "The baseline; default: compilediag.lock.json, if there."
    )
    base: str | None = option(
        "--base REF", "Show what this baseline allows and that of the branch or commit does not."
    )
    configuration: str | None = option(
        "--configuration --lane NAME", "Configuration of the baseline; default: the receipt's."
    )
    limits: tuple[Limit, ...] = option(
        "--fail-on EXPR",
        f"Limits such as '{EXAMPLE}'.",
        default=(),
        check=lambda key, value: parse_limits(value),
    )
    strict: bool = flag("--strict-improvement", "Fail for improvements as well.")
    require_proved_fix: bool = flag(
        "--require-proved-fix",
        "Fail for each finding without a change that `fix` or `certify` proved.",
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

    def refuse_contradictions(self) -> None:
        """Raise a UsageError where two options contradict each other."""
        judging = {
            "--fail-on": self.limits,
            "--strict-improvement": self.strict,
            "--require-proved-fix": self.require_proved_fix,
            "--own-code-only": self.own_code_only,
            "--format": self.formats,
            "--json": self.as_json,
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


TOML_KEYS = {"gate": collect_toml_keys(GateOptions, "gate")}
"""Keys of [tool.compilediag.gate]."""


def _read_gate_defaults(given: Given) -> Mapping[str, Any]:
    """Read what pyproject.toml says of judging receipts; nothing where none is judged."""
    if given["update"]:
        return {}
    return read_defaults(Path.cwd(), TOML_KEYS).get("gate", {})


@subcommand(
    "gate",
    GateOptions,
    table=_read_gate_defaults,
    examples="""\
  compilediag gate --fail-on 'recompiles>0,graph_breaks>2'   limits for the latest run
  compilediag gate --update --reason "warm-up"               record it in compilediag.lock.json
  compilediag gate                                           judge by compilediag.lock.json
  compilediag gate --format sarif=gate.sarif                 also write a file for CI
  compilediag gate --require-proved-fix                      every finding needs a proved change
""",
)
def command(options: GateOptions) -> int:
    """Judge receipts by limits and by a checked-in baseline.

    RECEIPT is a receipt file or the folder of a run; the default is the latest run. Several
    receipts are several configurations. Counts are judged; seconds only by a limit such as
    'compile_s>60'.

    The exit code is 0 if everything passes, 3 if something fails, and 2 if nothing can be judged:
    the receipt is blind, the baseline lacks the configuration, or the file is no receipt.
    """
    options.refuse_contradictions()
    if options.update:
        reason = (options.reason or "").strip() or None
        update_baseline(load_configs(options), find_baseline_path(options), reason, options.reasons)
        return EXIT_OK
    codes = _judge(options)
    # A failure comes before what cannot be judged; neither is a pass.
    return next((code for code in (EXIT_GATE, EXIT_USAGE) if code in codes), EXIT_OK)


def load_configs(options: GateOptions) -> tuple[ConfigReceipt, ...]:
    """Load a configuration for each receipt; the latest run without one.

    Raises:
        UsageError: two receipts would be one configuration.
        ReceiptContradictory: a receipt contradicts itself.
        ReceiptNotFound, ReceiptUnreadable: as `load_receipt`.
    """
    from compilediag.runs.checkout import read_working_tree

    name = options.configuration
    if name is not None and len(options.receipts) > 1:
        raise UsageError("--configuration names that of one receipt: give one, or leave it out")
    if name is not None and not name.strip():
        raise UsageError("--configuration is empty: say its name")
    by_name: dict[str, ConfigReceipt] = {}
    for where in options.receipts or (None,):
        file, receipt = load_receipt(where)
        refuse_contradictions(receipt, file)
        ran = receipt.header.provenance
        here = read_working_tree(ran, os.getcwd(), os.environ, find_baseline_path(options))
        compared = compare_code(ran, here)
        # The latest run, which nobody has named, must be known to be of this code: a hook passes on
        # no old evidence.
        reasons = compared.reasons or (compared.notices if where is None else ())
        code = CodeComparison(reasons, () if reasons else compared.notices)
        if options.any_code:
            code = CodeComparison(notices=(*compared.notices, *compared.reasons))
        config = ConfigReceipt(name or receipt.header.configuration.name, receipt, where, code)
        other = by_name.setdefault(config.name, config)
        if other is not config:
            raise UsageError(
                f"{other.where} and {where} are both of the configuration {config.name!r}: judge "
                "them one after the other, or name them apart with `compilediag run --name`"
            )
    return tuple(by_name.values())


def find_baseline_path(options: GateOptions) -> str | None:
    """Find the baseline: the file that was named, else that of this folder or repository."""
    return options.baseline if options.baseline is not None else find_lock(os.getcwd())


def _judge(options: GateOptions) -> list[int]:
    """Judge the receipts and return an exit code for each. Everything that can be wrong with the
    command line is found before anything is written."""
    from compilediag.commands.gate_output import parse_outputs, write_outputs
    from compilediag.compare.gate.judge import judge, list_enlarged

    outputs = parse_outputs((*options.formats, *(["json"] if options.as_json else [])))
    path = find_baseline_path(options)
    if path is None and not options.limits and not options.require_proved_fix:
        raise UsageError(
            "there is nothing to judge by: no compilediag.lock.json here or above. Type "
            "`compilediag gate --update` to record the latest run as the baseline, or give limits: "
            "`compilediag gate --fail-on 'recompiles>0'`"
        )
    baseline = read_lock(path) if path is not None else Baseline()
    base = None
    if options.base is not None:
        from compilediag.runs.checkout import read_file_at

        if path is None:
            raise UsageError("--base compares the baseline: there is no compilediag.lock.json")
        text = read_file_at(options.base, path)
        where = f"{options.base}:{shorten_path(path)}"
        base = Baseline() if text is None else parse_lock(text, where)
    configs = load_configs(options)
    judgements: list[Judgement] = []
    for config in configs:
        known, larger = baseline.find_configuration(config.name), ()
        if base is not None and known is not None:
            larger = list_enlarged(base.find_configuration(config.name), known, options.base or "")
        judgements.append(
            judge(
                config.receipt,
                limits=options.limits,
                baseline=known,
                baseline_name=shorten_path(path) if path is not None else None,
                strict=options.strict,
                own_code_only=options.own_code_only,
                configuration=config.name,
                code=config.code,
                enlarged=larger,
                require_proved_fix=options.require_proved_fix,
            )
        )
    write_outputs(judgements, outputs)
    if "terminal" in outputs.shown:
        write(f"\n  next: {_choose_next_command(judgements, configs)}\n")
    return [
        EXIT_OK if judgement.passed else EXIT_GATE if judgement.judged else EXIT_USAGE
        for judgement in judgements
    ]


def _choose_next_command(judgements: Sequence[Judgement], configs: Sequence[ConfigReceipt]) -> str:
    """Choose the command that helps most now."""
    better: list[str] = []
    for judgement, config in zip(judgements, configs, strict=True):
        suffix, failures = format_suffix(config.where), judgement.failures
        if config.code.reasons:
            return f"compilediag run {format_target(config.receipt)}"
        if failures and failures[0].kind == "unproved":
            tried = [record.id for record in config.receipt.findings if record.fix.refused]
            finding = failures[0].finding
            if finding not in tried:  # the latest run's by its number
                number = finding.removeprefix("F") if finding and config.where is None else ""
                return f"compilediag fix {number or format_target(config.receipt)}"
        first_finding = next((failure.finding for failure in failures if failure.finding), None)
        if judgement.judged and first_finding:
            return f"compilediag explain {first_finding.removeprefix('F')}{suffix}"
        if failures:
            return f"compilediag show{suffix}"
        better += [suffix] if judgement.improvements else []
    if better:
        return f"compilediag gate --update{better[0]}"
    return f"compilediag show{format_suffix(configs[0].where)}"


# --- --update ------------------------------------------------------------------------------------

_NAMED = 5


def update_baseline(
    configurations: Sequence[ConfigReceipt],
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
    from compilediag.compare.gate.judge import record_baseline

    file = path if path is not None else os.path.join(os.getcwd(), LOCK_NAME)
    name = shorten_path(file)
    lock = read_lock(file) if os.path.lexists(file) else Baseline()
    made = [
        record_baseline(
            configuration.receipt,
            lock.find_configuration(configuration.name),
            reason=reason,
            reasons=reasons,
            configuration=configuration.name,
            code=configuration.code,
        )
        for configuration in configurations
    ]
    _refuse(made, reasons, name)
    written = write_lock(file, lock.replace_configurations(record.baseline for record in made))
    lines = [f"Wrote {name}" if written else f"{name} holds this already"]
    for record in made:
        configuration, silent = record.baseline, len(record.without_reason)
        allowed = {
            "causes": len(configuration.causes),
            "graph_breaks": len(configuration.breaks),
            "eager_fallbacks": len(configuration.fallbacks),
        }
        shown = f"{_format_counts(configuration.counts)}; allowed: {_format_counts(allowed)}"
        doubtful = f" ({silent} without a reason)" if silent else ""
        lines.append(f"  configuration {configuration.name}: {shown}{doubtful}")
    named = "" if path is None else os.path.basename(path)
    option = "" if named in ("", LOCK_NAME) else f" --baseline {shlex.quote(name)}"
    following = f"  next: git add {shlex.quote(name)}, and in CI: compilediag gate{option}"
    screen = get_render_options()
    write("\n".join(screen.clean(line, 1000) for line in (*lines, "", following)) + "\n")


def _refuse(new: Sequence[RecordedBaseline], reasons: Sequence[tuple[str, str]], name: str) -> None:
    for record in new:
        config = record.baseline.name
        if record.inconclusive:
            raise UsageError(
                f"the run of configuration {config!r} is not recorded, because "
                f"{'; '.join(record.inconclusive)}; run it again"
            )
        if record.unexplained:
            raise UsageError(
                f"{name} would newly allow in configuration {config!r}: "
                f"{_format_names(record.unexplained)}; say why they are all right: "
                '--reason "TEXT" (nothing was written)'
            )
    used = {entry_name for record in new for entry_name in record.explained}
    for part, _ in reasons:
        if part not in used:
            allowed = [entry_name for record in new for entry_name in record.allowed]
            raise UsageError(
                f"--reason-for {part!r} names nothing that the runs would allow; they allow: "
                f"{_format_names(allowed)} (nothing was written)"
            )


def _format_names(names: Sequence[str]) -> str:
    more = len(names) - _NAMED
    shown = ", ".join(names[:_NAMED]) or "nothing"
    return shown + (f" and {more} more" if more > 0 else "")


def _format_counts(counts: Mapping[str, int]) -> str:
    """Format the counts that are not 0: "2 frames, 1 graph break"."""
    parts = [
        pluralize(count, name.removesuffix("s").replace("_", " "))
        for name, count in counts.items()
        if count
    ]
    return ", ".join(parts) or "nothing"
