"""Seconds of compiling beside what was in the compile caches: compared only where both states found
the same there, and foretold only where the recorded run found nothing."""

from typing import Any

import pytest
from msgspec.structs import replace

from compilediag.certify.cost import state_cost
from compilediag.receipt.schema.caches import CacheLookupRecord, CacheSection, CacheUsed
from compilediag.receipt.schema.receipt import Receipt
from compilediag.views.certificate import describe_length
from tests.support.built_receipt import built
from tests.support.certified_states import state

SECONDS = {"compile", "first compiles"}


def _look_up(*outcomes: str) -> CacheSection:
    """A section of the lookups of graphs with these outcomes and keys, "hit a"."""
    pairs = [text.split() for text in outcomes]
    names = [outcome for outcome, _ in pairs]
    counts: dict[str, Any] = {
        field: names.count(outcome)
        for field, outcome in (("hits", "hit"), ("misses", "miss"), ("bypasses", "bypass"))
    }
    nothing: dict[str, Any] = dict.fromkeys(CacheUsed.__struct_fields__)
    used = {**nothing, **counts, "cache": "fx_graph", "lookups": len(pairs), "components": {}}
    used |= {"disabled": 0, "failed": 0}
    lookups = tuple(
        CacheLookupRecord(
            cache="fx_graph",
            outcome=outcome,
            compile_id=f"0/{at}",
            epoch=0,
            process=0,
            frame=None,
            key=key,
            status="",
            saved_s=4.0 if outcome == "hit" else None,
        )
        for at, (outcome, key) in enumerate(pairs)
    )
    return CacheSection(caches=(CacheUsed(**used),), lookups=lookups)


def _run(*outcomes: str) -> Receipt:
    return replace(built(), caches=_look_up(*outcomes) if outcomes else None)


@pytest.mark.parametrize(
    ("before", "after", "alike", "said"),
    [
        ((), (), True, ""),
        (("miss a",), ("miss b",), True, ""),
        (("hit a",), ("hit b",), True, ""),
        (("miss a", "hit a"), ("miss b",), True, ""),  # what the run itself had put there
        (("hit a",), ("miss a",), False, "1 hit of compile caches before, 0 after"),
        (("hit a", "miss b"), ("hit a", "hit b"), False, "1 hit of compile caches before, 2 after"),
        (("bypass -",), ("bypass -",), False, ""),  # its kernels may have been there
    ],
)
def test_seconds_of_compiling_are_compared_where_the_caches_gave_the_same(
    before: tuple[str, ...], after: tuple[str, ...], alike: bool, said: str
) -> None:
    cost = state_cost(state(receipt=_run(*before)), state(receipt=_run(*after)))
    assert SECONDS & {figure.name for figure in cost.figures} == (SECONDS if alike else set())
    assert cost.sentence.partition("; seconds of compiling are not comparable: ")[2] == said
    assert ("; compile " in cost.sentence) == alike


def test_how_long_it_takes_is_said_by_the_recorded_run() -> None:
    run = _run()
    text = describe_length(run, varies=True)
    assert text.startswith("; the recorded run took ")
    assert "graphs that the change makes are compiled anew" in text
    assert text.endswith("calls with other inputs come on top, unless --no-vary")
    idle = replace(run, compile=replace(run.compile, compiles=0))
    assert "compile" not in describe_length(idle, varies=False)
