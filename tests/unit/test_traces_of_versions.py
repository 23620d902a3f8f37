"""Traces that other versions of torch wrote: the counts, causes and breaks that torch itself told.

`tools/record_traces.py` makes them, and writes what torch counted beside them; what is wrong with
each program is told by its scenario, for the version of torch.
"""

import gzip
import json
import re
from pathlib import Path
from typing import Any

import pytest

from compilediag.diagnosis.figures.compile_costs import OTHER, sum_compile_seconds
from compilediag.readers.torch_trace.read import read_trace
from compilediag.rules.diagnose import Diagnosis, diagnose
from compilediag.timeline.timeline import Timeline, fold

DATA = Path(__file__).parents[1] / "data"
VERSIONS = ("2.7.1", "2.15.0")

NO_BREAK = {("2.7.1", "break_on_exception")}
"""torch 2.7 has no such break in its trace where it skips the frame: docs/reference/analyze.md."""


Recorded = dict[str, Any]

_ADDRESS = re.compile(r"\d{12,}")


def expected(version: str) -> dict[str, Recorded]:
    """What torch told, by program."""
    path = DATA / f"traces_{version}" / "expected.json"
    return json.loads(path.read_text(encoding="utf-8"))


CASES = [(version, name) for version in VERSIONS for name in expected(version)]


def analyzed(version: str, name: str) -> tuple[Timeline, Diagnosis]:
    journals = read_trace(str(DATA / f"traces_{version}" / f"{name}.log.gz"))
    assert [journal.lost for journal in journals] == [{}]
    timeline = fold([journal.events for journal in journals], user_roots=("/home/user",))
    return timeline, diagnose(timeline)


@pytest.mark.parametrize(("version", "name"), CASES)
def test_phases_add_up_to_what_torch_says_that_its_compiles_took(version: str, name: str) -> None:
    """torch 2.7 does not time what it does before and after a frame: some 0.03 s of each."""
    timeline, _ = analyzed(version, name)
    found = sum_compile_seconds(timeline.compiles)
    untimed = 0.03 * found.attempts if version == "2.7.1" else 0.001
    assert abs(found.by_phase.get(OTHER, 0.0)) <= max(0.02 * found.total, untimed)
    assert sum(found.by_phase.values()) == pytest.approx(found.total, abs=1e-4)


def test_traces_of_both_versions_are_there() -> None:
    """A dozen programs each, the same ones."""
    programs = [{name for version, name in CASES if version == each} for each in VERSIONS]
    assert programs[0] == programs[1]
    assert len(programs[0]) == 12


@pytest.mark.parametrize(("version", "name"), CASES)
def test_counts_and_breaks_are_those_of_torch(version: str, name: str) -> None:
    """Restarts, resets, backwards and the recompile limit included, and nothing disagrees."""
    timeline, diagnosis = analyzed(version, name)
    told: Recorded = expected(version)[name]
    if (version, name) in NO_BREAK:
        told = {"counts": {**told["counts"], "graph_breaks": 0}, "breaks": []}
    guarded = [item for item in timeline.compiles if item.forward and item.guarded]
    assert {
        "frames": len(timeline.frames),
        "compiles": len(guarded),
        "recompiles": len(timeline.counted_recompiles),
        "graphs": sum(1 for item in guarded if item.graph_ops),
        "graph_breaks": len(timeline.breaks),
        "eager_fallbacks": sum(frame.ran_eager for frame in timeline.frames),
        "recompile_limit_hits": sum(item.limit_hit_step is not None for item in timeline.frames),
    } == told["counts"]
    assert sorted([site.file, site.line] for site in timeline.breaks) == told["breaks"]
    assert diagnosis.agreement.differences == ()
    assert diagnosis.verdict == "findings"


@pytest.mark.parametrize(("version", "name"), CASES)
def test_reasons_are_those_of_torch(version: str, name: str) -> None:
    """The first of each attempt, which is the one that torch's metrics tell; the epochs of a trace
    begin with its first compile."""
    timeline, _ = analyzed(version, name)
    told = expected(version)[name]["reasons"]
    first = min((epoch for epoch, _, _ in told), default=0)
    found = [
        [item.epoch + first, item.compile_id, item.reasons[0].split("\n")[0].strip()]
        for item in timeline.recompiles
    ]
    assert [_placeless(each) for each in found] == [_placeless(each) for each in told]


def _placeless(reason: list[Any]) -> list[Any]:
    """Addresses are those of one run."""
    return [*reason[:2], _ADDRESS.sub("0x", reason[2])]


@pytest.mark.parametrize("version", VERSIONS)
def test_nothing_of_a_machine_is_in_them(version: str) -> None:
    """Folders are neutral, and the traces small."""
    folder = DATA / f"traces_{version}"
    assert sum(path.stat().st_size for path in folder.iterdir()) < 160_000
    for path in folder.glob("*.gz"):
        content = gzip.decompress(path.read_bytes()).decode()
        roots = set(re.findall(r"(?<![\w.<:/-])/(\w+)/[\w./-]*\.py", content))
        assert roots <= {"home", "venv"}, path.name
