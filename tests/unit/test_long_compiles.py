"""CD601 to CD604: what makes compiling long."""

from dataclasses import replace
from typing import Any

import pytest
from built_receipt import compiled, ended, started, torch_seen

from compilediag.diagnosis.findings import Finding
from compilediag.rules.diagnose import ALL_RULES
from compilediag.timeline.timeline import fold
from compilediag_harness.wire import Compiled, RepeatedBlocks

BLOCKS = RepeatedBlocks("self.layers", "Block", 12, 60)


def row(**fields: Any) -> Compiled:
    """A compile of 20 s, of which 10 s are tracing, without lookups in caches."""
    made = compiled("0/0", 1.0, 0, 20.0, cache_hits=0, cache_misses=1)
    phases = (("entire_frame_compile", 10.0), ("gc", 10.0))
    return replace(made, **{"phases": phases, **fields})


def found(*rows: Compiled) -> list[Finding]:
    """All findings of these rules."""
    timeline = fold([(started(), torch_seen(), *rows, ended())])
    every = (each for rule in ALL_RULES for each in rule(timeline))
    return [each for each in every if each.rule.startswith("CD60")]


@pytest.mark.parametrize(
    "fields",
    [
        {"blocks": None},
        {"blocks": BLOCKS, "phases": None},
        {"blocks": BLOCKS, "phases": (("compile_file", 19.0), ("gc", 1.0))},
        {"blocks": BLOCKS, "seconds": 1.0, "phases": (("entire_frame_compile", 1.0),)},
        {"restarted_s": 4.0},
        {"restarted_s": None},
        {"phases": (("CachingAutotuner.benchmark_all_configs", 9.0), ("gc", 11.0))},
        {"phases": (("compile_file", 19.0), ("gc", 1.0))},
        {"phases": (("compile_file", 1.0),), "seconds": 1.0, "cache_misses": 0},
    ],
    ids=[
        "no equal blocks",
        "phases not seen",
        "only kernels are built",
        "short",
        "few restarts",
        "restarts not recorded",
        "little autotuning",
        "builds after a miss",
        "short builds",
    ],
)
def test_what_is_not_worth_a_sentence(fields: dict[str, Any]) -> None:
    """A first start builds kernels, and a short compile is no matter."""
    assert found(row(**fields)) == []


def test_equal_blocks_in_a_frame_that_is_not_the_most_expensive() -> None:
    """What it would save is no matter beside the other."""
    other = replace(row(seconds=40.0, phases=(("gc", 40.0),)), compile_id="1/0")
    other = replace(other, frame=replace(other.frame, function="other", line=99))
    assert found(row(blocks=BLOCKS), other) == []


KERNELS = {"phases": (("compile_file", 15.0), ("gc", 5.0))}


@pytest.mark.parametrize(
    ("fields", "rule", "cost_s"),
    [
        # Two of twelve compiles are left; building kernels is not saved.
        (
            {"blocks": BLOCKS, "phases": (("entire_frame_compile", 12.0), ("compile_file", 8.0))},
            *("CD601", pytest.approx(10.0)),
        ),
        ({"restarted_s": 8.0, "restart_reasons": ("Graph break: print",)}, "CD602", 8.0),
        # Trying kernels, whatever torch calls it.
        ({"phases": (("addmm_template_autotuning", 15.0), ("gc", 5.0))}, "CD603", 15.0),
        # torch counted neither a hit nor a miss.
        ({**KERNELS, "cache_hits": 0, "cache_misses": 0}, "CD604", 15.0),
        ({**KERNELS, "cache_hits": None, "cache_misses": None}, "CD604", 15.0),
    ],
)
def test_what_takes_most_of_a_compile(fields: dict[str, Any], rule: str, cost_s: float) -> None:
    (finding,) = found(row(**fields))
    assert (finding.rule, finding.cost_s) == (rule, cost_s)
    if rule == "CD602":
        assert finding.evidence["reasons"] == ["Graph break: print"]
