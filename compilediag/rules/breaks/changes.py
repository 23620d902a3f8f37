"""Changes for graph breaks: settings that torch's reports name, messages that are left out or
written later, another argument."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace

from compilediag.diagnosis.findings import Finding
from compilediag.receipt.schema.compiles import CandidateRecord, FindingRecord
from compilediag.receipt.schema.evidence import BreakEvidence
from compilediag.rules.case import FIRST_WITH_UNBACKED, Case
from compilediag.rules.changes import DYNAMO, IGNORED_LOGGERS, OVERRIDES, Change, setting, variable
from compilediag.rules.passed import OtherArgument, edited_call
from compilediag_harness.wire import SettingChange

_WRITING_METHODS = frozenset(("debug", "info", "warning", "error", "critical", "exception", "log"))
_ORDER = (
    "text is printed after the graph has run: its order and the values of mutated tensors change"
)
_OF_LOGGERS = ("debug", "info", "warning", "warn", "error", "exception", "critical", "fatal", "log")
_ADDED = "below the imports: a package adds it to the class"
_LOST = "the messages are not written while compiled"
_RISK = "holds for every compiled function; torch supports it only in part"
_UNFAITHFUL = frozenset(
    ("suppress_errors", "enable_faithful_generator_behavior", "use_numpy_random_stream")
)
_UNFAITHFUL_PREFIXES = ("_", "debug_", "skip_", "fail_on_")
"""Options that silence errors, leave something out, or change what is computed."""


_READ_OUTSIDE = frozenset(("compiled_autograd",))
"""Read where no frame is compiled: overriding them for frames has no effect."""


_DENSE = "a dense tensor has memory for every element"
_LIST = "a list holds all items at once, and all are made before the call"
BREAKS = "CD2"
"""How the codes of graph breaks begin."""
REWRITE = "what removes it is a rewrite of this code, which `fix` leaves to you"
WHY: Mapping[str, str] = {
    "CD201": REWRITE,
    "CD202": REWRITE,
    "CD203": "the call may do more than compute a value",
    "CD204": "the function was kept from being compiled on purpose",
    "CD206": "the `with` has to be entered around the compiled function: `fix` moves no code",
    "CD207": "what the object does to get an attribute cannot be seen in the source",
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


def hint_changes(case: Case) -> Iterator[Change]:
    """One change with each option that the report of the break wants set."""
    options = BreakEvidence.of(case.finding.evidence).options or {}
    offered = " ".join(item.setting for item in case.finding.fix.candidates)
    for name, value in options.items():
        unfaithful = name in _UNFAITHFUL or name.startswith(_UNFAITHFUL_PREFIXES)
        if value not in ("True", "False") or unfaithful or name.upper() in offered:
            continue
        if case.version < FIRST_WITH_UNBACKED or name in _READ_OUTSIDE:
            yield setting(DYNAMO, name, value == "True", _RISK)
        else:
            yield variable(OVERRIDES, f">=0:{name}={value}", _RISK)


def logging_changes(case: Case) -> Iterator[Change]:
    """A break at a function that writes text."""
    writer, ignorable = message_writer(case.finding), case.version >= FIRST_WITH_UNBACKED
    if writer in ("print", "warnings.warn"):
        dotted = "builtins.print" if writer == "print" else writer
        yield _functions("reorderable_logging_functions", dotted, writer, _ORDER)
    if ignorable and writer == "print":
        yield _functions(IGNORED_LOGGERS, "builtins.print", writer, _LOST)
    if ignorable and writer is not None and writer.startswith("logging.Logger."):
        own = writer.rpartition(".")[2] in _OF_LOGGERS
        change = _functions(IGNORED_LOGGERS, writer, writer, _LOST)
        yield change if own else replace(change, line=f"{change.line}  # {_ADDED}")


def _functions(option: str, dotted: str, shown: str, risk: str) -> Change:
    return Change(
        "configuration",
        f"{DYNAMO}.{option} = {{{shown}}}",
        risk,
        settings=(SettingChange(DYNAMO, option, (dotted,)),),
    )


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


def passed_changes(case: Case) -> Iterator[Change]:
    """Something else that is passed at the call."""
    for passed in _in_place_of_a_break(case):
        yield from edited_call(case, passed)


def _in_place_of_a_break(case: Case) -> Iterator[OtherArgument]:
    """For each argument in turn: which one breaks the graph torch does not say."""
    called = case.finding.entered_at
    sparse = "sparse" in (BreakEvidence.of(case.finding.evidence).reason or "").lower()
    for item in called.arguments if called is not None else ():
        if case.finding.rule == "CD205":
            yield OtherArgument(item.parameter, "list", "list(_)", _LIST)
        elif case.finding.rule == "CD208" and sparse:
            yield OtherArgument(item.parameter, "to_dense", "_.to_dense()", _DENSE)


def settings_of(finding: Finding) -> Iterator[CandidateRecord]:
    """Where torch's own report of the break names the setting."""
    broken = BreakEvidence.of(finding.evidence)
    text = f"{broken.reason or ''} {broken.explanation or ''}"
    for mark, name in _CAPTURES.items():
        if mark in text:
            yield CandidateRecord(
                "environment", name, "1", "the code may need torch._check on the value"
            )


_CAPTURES = {
    "capture_scalar_outputs": "TORCHDYNAMO_CAPTURE_SCALAR_OUTPUTS",
    "Dynamic shape operator": "TORCHDYNAMO_CAPTURE_DYNAMIC_OUTPUT_SHAPE_OPS",
}
