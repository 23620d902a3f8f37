"""Options of torch's configuration that are set before the program compiles anything."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace

from compilediag.receipt.schema.compiles import FindingRecord
from compilediag.receipt.schema.evidence import BreakEvidence
from compilediag.rules.case import FIRST_WITH_UNBACKED, Case
from compilediag.rules.changes import IGNORED_LOGGERS, Change, export_line
from compilediag_harness.wire import SettingChange

_WRITING_METHODS = frozenset(("debug", "info", "warning", "error", "critical", "exception", "log"))


DYNAMO = "torch._dynamo.config"
SHAPES = "torch.fx.experimental._config"

_INT = re.compile(r"-?\d+")
_FLOAT = re.compile(r"-?(?:\d+\.\d*|\d*\.\d+)(?:e[+-]?\d+)?|-?\d+e[+-]?\d+")
_NUMBERS = ("CD101", "CD104", "CD107", "CD109", "CD117")

SOURCES = "TORCH_COMPILE_DYNAMIC_SOURCES"
OVERRIDES = "TORCH_COMPILE_OVERRIDE_DYNAMO_CONFIGS"

_LISTABLE = re.compile(r"[LG]\[[^\s,:$`\\\"!]+")

_EVERY_NAMESAKE = "holds for every compiled function with a variable of this name"
_EVERY_FUNCTION = "holds for every compiled function, which may run slower"
_ORDER = (
    "text is printed after the graph has run: its order and the values of mutated tensors change"
)
_CALLED = "the hook is called, and its module is compiled again; guards take longer"
_OF_LOGGERS = ("debug", "info", "warning", "warn", "error", "exception", "critical", "fatal", "log")
_ADDED = "below the imports: a package adds it to the class"
_LOST = "the messages are not written while compiled"


def is_integer(value: str) -> bool:
    """Whether a value as guards name it is an int."""
    return _INT.fullmatch(value) is not None


def is_float(value: str) -> bool:
    """Whether a value as guards name it is a float."""
    return _FLOAT.fullmatch(value) is not None


def option_candidates(case: Case) -> Iterator[Change]:
    """Options for numbers, messages and hooks."""
    yield from _numbers(case)
    yield from _logging(case)
    yield from _late_hook(case)


def _numbers(case: Case) -> Iterator[Change]:
    """Where torch has no variable of the environment for it."""
    if case.finding.rule not in _NUMBERS or case.version >= FIRST_WITH_UNBACKED:
        return
    values = [value for pair in case.values for value in pair]
    if values and all(map(is_float, values)):
        yield setting(DYNAMO, "assume_static_by_default", False, _EVERY_FUNCTION)
    elif values and all(map(is_integer, values)) and case.finding.rule in ("CD104", "CD117"):
        yield setting(DYNAMO, "allow_unspec_int_on_nn_module", True, _EVERY_FUNCTION, left=1)


def branched_candidates(case: Case) -> Iterator[Change]:
    """For a number that the code branches on: each outcome of the branch has a graph then, not each
    number. An edit that leaves no recompile comes first."""
    values = [value for pair in case.values for value in pair]
    new = case.version >= FIRST_WITH_UNBACKED
    if case.finding.rule not in _NUMBERS or not new or case.finding.fix.candidates or not values:
        return
    if all(map(is_integer, values)) and _LISTABLE.fullmatch(case.source):
        yield variable(SOURCES, case.source, _EVERY_NAMESAKE, left=1)
    elif all(is_integer(value) or is_float(value) for value in values):
        yield variable(OVERRIDES, ">=0:assume_static_by_default=False", _EVERY_FUNCTION, left=1)


def variable(name: str, value: str, risk: str, left: int = 0) -> Change:
    """A variable of the environment."""
    line = export_line(name, value)
    return Change("environment", line, risk, variables=((name, value),), left=left)


def _logging(case: Case) -> Iterator[Change]:
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


def _late_hook(case: Case) -> Iterator[Change]:
    if case.finding.rule == "CD119":
        change = setting(DYNAMO, "skip_nnmodule_hook_guards", False, _CALLED)
        yield replace(change, corrects=True)


def setting(module: str, name: str, value: bool | str, risk: str, left: int = 0) -> Change:
    """An option of a configuration module of torch."""
    line = f"{module}.{name} = {value!r}"
    return Change(
        "configuration", line, risk, settings=(SettingChange(module, name, value),), left=left
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
