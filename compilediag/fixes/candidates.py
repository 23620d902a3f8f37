"""What may be tried to remove a finding, the cheapest first: variables of the environment, options
of torch's configuration, marks at the call.

A candidate stands here only where it was seen to work for that kind of cause and version of torch;
whether it works in this program is what a trial shows. Options that drop guards are none.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from typing import Any, NamedTuple

from packaging.version import InvalidVersion, Version

from compilediag.diagnosis.causes.changed_sizes import changed_dimensions
from compilediag.fixes.changes import Change
from compilediag.fixes.environment import export_line
from compilediag.fixes.messages import message_writer
from compilediag.fixes.source_edits import source_changes_of
from compilediag.receipt.schema.compiles import FindingRecord
from compilediag.receipt.schema.receipt import Receipt
from compilediag_harness.wire import ArgumentChange, CompileOption, Location, SettingChange

DYNAMO = "torch._dynamo.config"
SHAPES = "torch.fx.experimental._config"

_FIRST_WITH_UNBACKED = Version("2.13")
"""TORCH_COMPILE_UNBACKED_SOURCES, `ignore_logging_functions`, and overrides in the environment."""

_PARAMETER = re.compile(r"L\['([A-Za-z_]\w*)'\]((?:\[[^\s$`\\\"!]+\]|\.\w+)*)")
_SIZE = re.compile(r"(L\['[A-Za-z_]\w*'\](?:\[[^\s\]]+\])*)\.size\(\)\[(\d+)\]")
_INT = re.compile(r"-?\d+")
_FLOAT = re.compile(r"-?(?:\d+\.\d*|\d*\.\d+)(?:e[+-]?\d+)?|-?\d+e[+-]?\d+")
_NUMBERS = ("CD101", "CD104", "CD107", "CD109", "CD117")

_EVERY_FUNCTION = "holds for every compiled function, which may run slower"
_EVERY_SIZE = "every size and number of every compiled function is dynamic: kernels may be slower"
_ORDER = "what is printed comes after the graph: its order and the values of mutated tensors change"
_LOST = "the messages are not written while compiled"
_EXTRA_GRADIENT = "a gradient is kept for the input, which costs memory"
_DATA_DEPENDENT = "where the code branches on the size, torch raises an error"


class _Case(NamedTuple):
    """A finding with what candidates are made from."""

    finding: FindingRecord
    function: Location | None
    """What is called compiled; None where the frame is no such function."""
    version: Version

    @property
    def source(self) -> str:
        return str(self.finding.evidence.get("source") or "")

    @property
    def kind(self) -> str:
        return str(self.finding.evidence.get("kind") or "")

    @property
    def values(self) -> list[tuple[str, str]]:
        """Each change that was seen, as (before, after)."""
        evidence = self.finding.evidence
        seen: Any = evidence.get("values") or [(evidence.get("expected"), evidence.get("actual"))]
        return [(str(before), str(after)) for before, after in seen if before and after]


def candidates_of(finding: FindingRecord, receipt: Receipt) -> tuple[Change, ...]:
    """What may remove a finding in the receipt's version of torch, in the order of trying."""
    found = [
        Change(
            "environment",
            export_line(item.setting, item.value),
            item.risk,
            variables=((item.setting, item.value),),
            left=1 if "allow_unspec_int" in item.value else 0,
        )
        for item in finding.fix.candidates
    ]
    version = _version(receipt.environment.torch)
    if version is not None:
        case = _Case(finding, _compiled_function(finding, receipt), version)
        found += [change for make in _MAKERS for change in make(case)]
    found += source_changes_of(finding, receipt)
    return tuple(dict.fromkeys(found))


def _version(torch: str | None) -> Version | None:
    try:
        return Version(Version(torch or "").base_version)
    except InvalidVersion:
        return None


def _compiled_function(finding: FindingRecord, receipt: Receipt) -> Location | None:
    """The compiled function whose recompiles the finding is about, where that is what the program
    calls: marks are put on its arguments."""
    frames = {
        (event.frame.file, event.frame.line)
        for event in receipt.compile.events
        if any(cause.finding == finding.id for cause in event.causes)
    }
    called = [item for item in receipt.invocations if (item.file, item.line) in frames]
    if len(frames) != 1 or not called:
        return None
    return Location(called[0].file or "", called[0].line or 0, called[0].name)


def _dynamic_sizes(case: _Case) -> Iterator[Change]:
    """Marks on the argument, then everything dynamic."""
    if case.finding.rule != "CD105" or case.kind == "marking":
        return
    changed = [item for pair in case.values for item in changed_dimensions(*pair)]
    if not changed:
        return
    small = any({item.before, item.after} & {"0", "1"} for item in changed)
    dimensions = sorted({item.dimension for item in changed})
    if small:
        yield from _unbacked(case, case.source, dimensions)
        return
    yield from _mark(
        case,
        "mark_dynamic",
        case.source,
        dimensions,
        "its sizes are dynamic: kernels may be slower, and a CUDA graph is recorded for each size",
    )
    yield Change(
        "call",
        "torch.compile(..., dynamic=True)",
        _EVERY_SIZE,
        options=(CompileOption("dynamic", True),),
    )


def _bound_sizes(case: _Case) -> Iterator[Change]:
    """A condition between sizes that torch put into the graph's guards."""
    if case.finding.rule != "CD118":
        return
    guard = str(case.finding.evidence.get("guard") or "")
    sizes = _SIZE.findall(guard)
    if case.kind == "zero_one" and len(sizes) == 1:
        source, dimension = sizes[0]
        yield from _unbacked(case, source, [int(dimension)])
    elif len(sizes) == 2 and "==" in guard:
        yield _setting(SHAPES, "use_duck_shape", False, "more symbols: compiles take longer")


def _unbacked(case: _Case, source: str, dimensions: list[int]) -> Iterator[Change]:
    """0 and 1 are constants of every graph, but for a size that is taken for unknown."""
    if case.version >= _FIRST_WITH_UNBACKED and _PARAMETER.fullmatch(source) and "," not in source:
        value = ",".join(f"{source}:{dimension}" for dimension in dimensions)
        name = "TORCH_COMPILE_UNBACKED_SOURCES"
        yield Change(
            "environment", export_line(name, value), _DATA_DEPENDENT, variables=((name, value),)
        )
    yield from _mark(case, "mark_unbacked", source, dimensions, _DATA_DEPENDENT)


def _mark(
    case: _Case, action: str, source: str, dimensions: Iterable[int], risk: str
) -> Iterator[Change]:
    found = _PARAMETER.fullmatch(source)
    if found is None or case.function is None or found[1] == "self":
        return
    argument, function = f"{found[1]}{found[2]}", case.function
    name = _as_passed(case.finding, found[1]) + found[2]
    where = _call_place(case.finding)
    module = "torch._dynamo.decorators" if action == "mark_unbacked" else "torch._dynamo"
    calls = "; ".join(f"{module}.{action}({name}, {dimension})" for dimension in dimensions)
    yield Change(
        "call",
        f"{calls}  # before the call{where}",
        risk,
        arguments=tuple(
            ArgumentChange(function, argument, action, dimension) for dimension in dimensions
        ),
    )


def _requires_grad(case: _Case) -> Iterator[Change]:
    found = _PARAMETER.fullmatch(case.source)
    if case.finding.rule != "CD106" or case.kind != "requires_grad":
        return
    if found is None or case.function is None or found[1] == "self":
        return
    name = _as_passed(case.finding, found[1]) + found[2]
    yield Change(
        "call",
        f"{name}.requires_grad_()  # before the call{_call_place(case.finding)}",
        _EXTRA_GRADIENT,
        arguments=(ArgumentChange(case.function, f"{found[1]}{found[2]}", "requires_grad"),),
    )


def _as_passed(finding: FindingRecord, parameter: str) -> str:
    """The variable that the program passes for a parameter; the parameter where it passes no
    plain variable."""
    passed = finding.entered_at.arguments if finding.entered_at is not None else ()
    names = [item.expression for item in passed if item.parameter == parameter]
    return names[0] if len(names) == 1 and names[0].isidentifier() else parameter


def _call_place(finding: FindingRecord) -> str:
    entered = finding.entered_at
    return f", {entered.file}:{entered.line}" if entered is not None else ""


def _numbers(case: _Case) -> Iterator[Change]:
    """Where torch has no variable of the environment for it."""
    if case.finding.rule not in _NUMBERS or case.version >= _FIRST_WITH_UNBACKED:
        return
    values = [value for pair in case.values for value in pair]
    if values and all(map(_FLOAT.fullmatch, values)):
        yield _setting(DYNAMO, "assume_static_by_default", False, _EVERY_FUNCTION)
    elif values and all(map(_INT.fullmatch, values)) and case.finding.rule in ("CD104", "CD117"):
        yield _setting(DYNAMO, "allow_unspec_int_on_nn_module", True, _EVERY_FUNCTION, left=1)


def _logging(case: _Case) -> Iterator[Change]:
    """A break at a function that writes text."""
    writer, ignorable = message_writer(case.finding), case.version >= _FIRST_WITH_UNBACKED
    if writer in ("print", "warnings.warn"):
        dotted = "builtins.print" if writer == "print" else writer
        yield _functions("reorderable_logging_functions", dotted, writer, _ORDER)
    if ignorable and writer == "print":
        yield _functions("ignore_logging_functions", "builtins.print", writer, _LOST)
    if ignorable and writer is not None and writer.startswith("logging.Logger."):
        yield _functions("ignore_logging_functions", writer, writer, _LOST)


def _functions(option: str, dotted: str, shown: str, risk: str) -> Change:
    return Change(
        "configuration",
        f"{DYNAMO}.{option} = {{{shown}}}",
        risk,
        settings=(SettingChange(DYNAMO, option, (dotted,)),),
    )


def _late_hook(case: _Case) -> Iterator[Change]:
    if case.finding.rule == "CD119":
        yield _setting(DYNAMO, "skip_nnmodule_hook_guards", False, "guards take longer")


def _setting(module: str, name: str, value: bool, risk: str, left: int = 0) -> Change:
    line = f"{module}.{name} = {value}"
    return Change(
        "configuration", line, risk, settings=(SettingChange(module, name, value),), left=left
    )


_MAKERS: tuple[Callable[[_Case], Iterator[Change]], ...] = (
    _dynamic_sizes,
    _bound_sizes,
    _requires_grad,
    _numbers,
    _logging,
    _late_hook,
)
