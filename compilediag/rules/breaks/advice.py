"""What to change for each category of graph break, as measured in docs/rules/CD2xx.md; and what may
be tried: settings that torch's reports name, and messages that are left out or written later."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import NamedTuple

from compilediag.receipt.schema.compiles import CandidateRecord, FindingRecord
from compilediag.receipt.schema.evidence import BreakEvidence
from compilediag.rules.breaks.text import BreakReport
from compilediag.rules.case import FIRST_WITH_UNBACKED, Case
from compilediag.rules.changes import DYNAMO, IGNORED_LOGGERS, Change, dynamo, override
from compilediag.rules.make_finding import Advice
from compilediag_harness.wire import SettingChange

FIXES = {
    "CD201": Advice(
        "compute both sides and choose with torch.where; or branch with torch.cond",
        "torch.where computes both sides; torch.cond needs functions without side effects",
    ),
    "CD202": Advice(
        "keep the value a tensor; or read it after the compiled function",
        "torch._dynamo.config.capture_scalar_outputs = True (for sizes: "
        "capture_dynamic_output_shape_ops) keeps one graph with an unknown value",
    ),
    "CD203": Advice("call {it} outside the compiled function"),
    "CD204": Advice(
        "call {it} outside the compiled function: Dynamo skips that function on purpose"
    ),
    "CD205": Advice(
        "pass a list instead of a generator, and compile what consumes it",
        "a list holds all items at once",
    ),
    "CD206": Advice("open the context around the call of the compiled function"),
    "CD207": Advice(
        "use plain attributes, build objects outside and return values instead of mutating"
    ),
    "CD208": Advice("convert to a dense tensor (or jagged layout) before the compiled function"),
    "CD209": Advice(
        "call backward and autograd.grad, and register hooks, outside the compiled function",
        "backward hooks of modules need compiled autograd to stay in the graph",
    ),
    "CD210": Advice(
        "use a functional form of the operator; or register a fake implementation for it"
    ),
    "CD211": Advice(
        "move {it} out of the compiled function; or put it under "
        "`if not torch.compiler.is_compiling()`",
        "under is_compiling() it no longer runs once compiled",
    ),
    "CD212": Advice("draw before the compiled function, and pass what was drawn as a tensor"),
    "CD213": Advice("check before the compiled function, and raise there"),
    "CD214": Advice("keep the operator's contract: pure functions, the same output structure"),
    "CD290": Advice("read torch's report in the evidence: this break fits no known category"),
}
_BY_THE_CALLER = frozenset(("CD205", "CD208", "CD209", "CD290"))
"""Codes of what the caller passes or sets up: the advice holds whoever has the line."""

EXPLICIT = Advice(
    "accept it; or remove the call; or move it to the edge of the compiled function",
    "without torch.compiler.disable the function is traced and guarded",
)
EXPLICIT_OF_OTHERS = Advice("accept it: the code that requests it is not part of the program")
OF_PACKAGE = Advice(
    "make the call of the package, `{call}` ({place}), outside the compiled function"
)
"""Where the program's own compiled code calls a package in whose code the break is."""

WITHIN_PACKAGE = Advice("accept it: the line is a package's, and so is what calls it")


class OwnCall(NamedTuple):
    """A call in the program's own compiled code, below which a break is in another's."""

    text: str
    place: str


def break_fix(
    code: str, report: BreakReport, *, own: bool, in_package: bool, call: OwnCall | None
) -> Advice:
    """What to change for a break of category `code`.

    Args:
        code: the category.
        report: torch's report.
        own: whether torch names a line of the program's own.
        in_package: whether the line to change is a package's.
        call: of a package's line, the call of it in what the program compiles; None where the
            program calls something compiled of which all code is a package's.
    """
    if report.explicit:
        return EXPLICIT if own else EXPLICIT_OF_OTHERS
    fix = FIXES[code]
    if in_package and code not in _BY_THE_CALLER:
        caveat = fix.caveat if code == "CD202" else None  # a setting: whoever has the line
        if call is None:
            return WITHIN_PACKAGE._replace(caveat=caveat)
        return OF_PACKAGE.filled(call=call.text, place=call.place)._replace(caveat=caveat)
    return fix.filled(it=f"`{report.callee.name}`" if report.callee is not None else "it")


# --- what may be tried --------------------------------------------------------------------------

BREAKS = "CD2"
"""How the codes of graph breaks begin."""

REWRITE = "what removes it is a rewrite of this code, which `fix` leaves to you"
WHY: Mapping[str, str] = {
    "CD201": REWRITE,
    "CD202": REWRITE,
    "CD203": "the call may do more than compute a value",
    "CD204": "the function was kept from being compiled on purpose",
    "CD205": "a list in its place holds all items at once",
    "CD206": "the `with` has to be entered around the compiled function: `fix` moves no code",
    "CD207": "what the object does to get an attribute cannot be seen in the source",
    "CD208": "a dense tensor has memory for every element",
    "CD209": "what autograd does there is not part of a graph: call it outside the compiled "
    "function",
    "CD210": "the shapes of what the operator returns cannot be derived from its kernel",
    "CD211": "what writes the message is not one of the functions that torch can leave out",
    "CD212": "the draw would happen at another time, or not in every call",
    "CD213": "the error is intended: only a function that returns is compiled",
    "CD214": "the side effect would happen a different number of times",
    "CD290": "no torch operation applies a Python function to each element",
}
"""Why no change can be tried, where there is none."""

_CAPTURES = {
    "capture_scalar_outputs": "TORCHDYNAMO_CAPTURE_SCALAR_OUTPUTS",
    "Dynamic shape operator": "TORCHDYNAMO_CAPTURE_DYNAMIC_OUTPUT_SHAPE_OPS",
}
"""Words of a report, and the setting that captures what it is about."""


def settings_of(finding: FindingRecord) -> Iterator[CandidateRecord]:
    """Where torch's own report of the break names the setting."""
    broken = BreakEvidence.of(finding.evidence)
    text = f"{broken.reason or ''} {broken.explanation or ''}"
    for mark, name in _CAPTURES.items():
        if mark in text:
            risk = "the code may need torch._check on the value"
            yield CandidateRecord("environment", name, "1", risk)


_UNFAITHFUL = frozenset(
    ("suppress_errors", "enable_faithful_generator_behavior", "use_numpy_random_stream")
)
_UNFAITHFUL_PREFIXES = ("_", "debug_", "skip_", "fail_on_")
"""Options that silence errors, leave something out, or change what is computed."""

_READ_OUTSIDE = frozenset(("compiled_autograd",))
"""Read where no frame is compiled: overriding them for frames has no effect."""


def hint_changes(case: Case) -> Iterator[Change]:
    """One change with each option that the report of the break wants set."""
    options = BreakEvidence.of(case.finding.evidence).options or {}
    offered = " ".join(item.setting for item in case.finding.fix.candidates)
    risk = "holds for every compiled function; torch supports it only in part"
    for name, value in options.items():
        unfaithful = name in _UNFAITHFUL or name.startswith(_UNFAITHFUL_PREFIXES)
        if value not in ("True", "False") or unfaithful or name.upper() in offered:
            continue
        if case.version < FIRST_WITH_UNBACKED or name in _READ_OUTSIDE:
            yield dynamo(name, value == "True", risk)
        else:
            yield override(name, value, risk)


_WRITING_METHODS = frozenset(("debug", "info", "warning", "error", "critical", "exception", "log"))
_OF_LOGGERS = _WRITING_METHODS | {"warn", "fatal"}
_ORDER = (
    "text is printed after the graph has run: its order and the values of mutated tensors change"
)
_LOST = "the messages are not written while compiled"


def logging_changes(case: Case) -> Iterator[Change]:
    """A break at a function that writes text."""
    writer, ignorable = message_writer(case.finding), case.version >= FIRST_WITH_UNBACKED
    if writer in ("print", "warnings.warn"):
        dotted = "builtins.print" if writer == "print" else writer
        yield _functions("reorderable_logging_functions", dotted, writer, _ORDER)
    if ignorable and writer == "print":
        yield _functions(IGNORED_LOGGERS, "builtins.print", writer, _LOST)
    if ignorable and writer is not None and writer.startswith("logging.Logger."):
        change = _functions(IGNORED_LOGGERS, writer, writer, _LOST)
        if writer.rpartition(".")[2] not in _OF_LOGGERS:
            added = "below the imports: a package adds it to the class"
            change = replace(change, line=f"{change.line}  # {added}")
        yield change


def _functions(option: str, dotted: str, shown: str, risk: str) -> Change:
    line = f"{DYNAMO}.{option} = {{{shown}}}"
    settings, silences = (SettingChange(DYNAMO, option, (dotted,)),), option == IGNORED_LOGGERS
    return Change("configuration", line, risk, settings=settings, silences=silences)


def message_writer(finding: FindingRecord) -> str | None:
    """What writes text where the break is: "print", "warnings.warn" or "logging.Logger.info"; torch
    2.7 names no method of a logger: "logging.Logger". None for any other function, whatever its
    name: a `log` of the program's own may do more. Of what torch calls a logger every method is one
    (`warning_once` of libraries): torch can leave it out, and there is no other it could mean.
    """
    if finding.rule != "CD211":
        return None
    broken = BreakEvidence.of(finding.evidence)
    reason = broken.reason or ""
    if reason.startswith("Logger not supported"):
        return "logging.Logger"
    name, module = broken.callee.get("name") or "", broken.callee.get("module") or ""
    owner, _, short = name.rpartition(".")
    if short == "print" and owner in ("", "builtins") and module in ("", "builtins"):
        return "print"
    if short == "warn" and module in ("", "warnings", "_warnings"):
        return "warnings.warn"
    if reason.startswith("logging.Logger method") and owner == "Logger" and short.isidentifier():
        return f"logging.Logger.{short}"
    if short in _WRITING_METHODS and (module.partition(".")[0] == "logging" or owner == "Logger"):
        return f"logging.Logger.{short}"
    return None
