"""Settings under a finding: only those that work for its values and version of torch.

Those of plain integers, floats, sizes and breaks are in recorded runs (`make frozen`).
"""

from dataclasses import replace
from typing import Any

import pytest

from compilediag.receipt.schema.compiles import CandidateRecord, FindingRecord, FixRecord
from compilediag.rules.diagnose import diagnose
from compilediag.timeline.timeline import Process, Timeline
from compilediag.views.findings import join_exports
from compilediag_harness.wire import FalseGuard, ValueUse
from tests.support.timelines import attempt, false_guard, process, recompile, timeline

DYNAMIC = "TORCH_COMPILE_DYNAMIC_SOURCES"
OVERRIDES = "TORCH_COMPILE_OVERRIDE_DYNAMO_CONFIGS"


def on(version: str) -> Process:
    seen = process()
    return replace(seen, torch=replace(seen.torch, torch=version))


def settings(run: Timeline, *versions: str) -> list[tuple[str, str]]:
    processes = tuple(on(version) for version in versions or ("2.13.0+cpu",))
    findings = diagnose(replace(run, processes=processes)).findings
    found = [each for finding in findings for each in finding.fix.candidates]
    return [(each.setting, each.value) for each in found]


def recompiled(*guards: FalseGuard, **more: object) -> Timeline:
    again = attempt("0/1", kind="recompile", step=1, cause=recompile(guards=guards))
    return timeline([attempt("0/0"), again], **more)


def tensor(before: str, after: str, source: str = "L['x']") -> FalseGuard:
    text = f"tensor '{source}' size mismatch at index 0. expected 4, actual 6"
    return false_guard(source, text, leaf="TENSOR_MATCH", expected=before, actual=after)


@pytest.mark.parametrize("values", [("True", "False"), ("'a'", "'b'"), ("2", "None"), ("2", "2.5")])
def test_nothing_where_no_setting_works(values: tuple[str, str]) -> None:
    before, after = values
    assert settings(recompiled(false_guard(expected=before, actual=after))) == []


@pytest.mark.parametrize(
    ("kinds", "helps"),
    [
        ((), False),
        (("index",), False),
        (("arithmetic", "loop"), False),
        (("number", "unknown"), False),
        (("slice",), False),  # a size of 1 is a constant
        (("arithmetic", "operand"), True),
    ],
)
def test_nothing_where_the_code_needs_the_value_as_a_constant(kinds: Any, helps: bool) -> None:
    """By each use that was found in the source; where none was, nothing is known."""
    uses = tuple(ValueUse(kind, "train.py", 3) for kind in kinds)
    again = [
        attempt(
            f"0/{number}",
            kind="recompile",
            step=number,
            cause=recompile(
                f"0/{number}",
                guards=(false_guard(expected=str(number), actual=str(number + 1), uses=uses),),
            ),
        )
        for number in (1, 2)
    ]
    assert bool(settings(timeline([attempt("0/0"), *again]))) == helps


@pytest.mark.parametrize(
    "source",
    [
        *("L['d']['my key']", "L['d']['a,b']", "L['d']['$x']"),
        *("L['d'][list(dict.keys(L['d']))[0]]", "L['___stack0']", "L['___stack0'][1]"),
    ],
)
def test_nothing_for_a_source_that_the_list_cannot_hold(source: str) -> None:
    """torch splits the list at commas, removes blanks, and fails for what is no regular expression;
    the shell replaces what follows a $. Names of Dynamo's own are no variables of the program."""
    assert settings(recompiled(false_guard(source, f"{source} == 2"))) == []
    assert settings(recompiled(tensor("[4, 8]", "[6, 8]", source))) == []


@pytest.mark.parametrize(
    "source", ["L['self']._buffers['pe']", "L['self']._modules['head']._parameters['weight']"]
)
def test_what_a_module_gets_in_another_size(source: str) -> None:
    """Seen on 2.13 and later; where the code branches on the size, it is another branch."""
    run = recompiled(tensor("[4, 8]", "[6, 8]", source))
    shown = replace(run, processes=(on("2.13.0+cpu"),))
    fixes = [finding.fix for finding in diagnose(shown).findings]
    assert any(f"{source}:0" in f"{fix.summary} {fix.candidates}" for fix in fixes)
    assert settings(run, "2.7.1") == []
    assert settings(recompiled(tensor("[1, 8]", "[6, 8]", source))) == []


@pytest.mark.parametrize("sizes", [("[1, 8]", "[6, 8]"), ("[4, 8]", "[0, 8]")])
def test_sizes_of_0_and_1_stay_constants(sizes: tuple[str, str]) -> None:
    assert settings(recompiled(tensor(*sizes))) == []


def test_what_older_versions_lack_is_not_printed() -> None:
    """Seen on 2.7.1: names without dimensions work, globals and overrides do not."""
    assert settings(recompiled(tensor("[4, 8]", "[6, 8]")), "2.7.1") == [(DYNAMIC, "L['x']")]
    assert settings(recompiled(false_guard("G['N']", "G['N'] == 2")), "2.7.1") == []
    assert settings(recompiled(false_guard(expected="0.5", actual="1.5")), "2.7.1") == []


@pytest.mark.parametrize("versions", [("2.7.1", "2.13.0"), ("unknown",)])
def test_nothing_where_the_version_is_not_one(versions: tuple[str, ...]) -> None:
    assert settings(recompiled(false_guard()), *versions) == []


def candidate(setting: str, value: str) -> CandidateRecord:
    return CandidateRecord(kind="environment", setting=setting, value=value, risk="")


def finding(*candidates: CandidateRecord) -> FindingRecord:
    return FindingRecord(
        **dict.fromkeys(("variable", "location", "ownership", "cost_s")),
        id="F1",
        rule="CD107",
        slug="python-scalar",
        severity="warning",
        confidence="exact",
        family="python_scalar",
        count=1,
        steps=(),
        evidence={},
        fix=FixRecord(summary="", how="", candidates=candidates),
    )


def test_settings_of_several_findings_are_joined() -> None:
    findings = [
        finding(candidate(DYNAMIC, "L['n']")),
        finding(candidate(DYNAMIC, "L['x']:0,L['n']")),
        finding(candidate(OVERRIDES, ">=0:a=1"), candidate(DYNAMIC, "L['never']")),
        finding(candidate(OVERRIDES, ">=0:b=2")),
    ]
    assert join_exports(findings) == [
        f"export {DYNAMIC}=\"L['n'],L['x']:0\"",
        f'export {OVERRIDES}=">=0:a=1,b=2"',
    ]
