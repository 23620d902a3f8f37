"""Callables of known truth, and what the check of padding says of them."""

import pytest
from padding_pieces import HARMLESS, NAMES, PIECES, Padding, campaign

CASES, PARTS = 300, 4
"""`make padding` judges many more."""


@pytest.mark.parametrize("part", range(PARTS))
def test_nothing_that_is_harmful_is_judged_safe(part: int) -> None:
    """Nor what no run can decide; and calls of what is judged safe give what the callable gives."""
    tally = campaign(range(part, CASES, PARTS))
    assert not tally.false_accepts
    assert not tally.wrong_calls
    assert len(tally.false_refusals) <= 1, tally.false_refusals
    assert {truth for truth, _ in tally.judged} == set(NAMES)


def test_every_piece_is_used_and_has_a_truth() -> None:
    """With the last row repeated and with a value; no piece is left out of both."""
    repeated, valued = Padding("repeat", "repeat", mask=True), Padding(2.5, 4, mask=True)
    truths = [(item.truth(repeated), item.truth(valued)) for item in PIECES]
    assert all(pair != (None, None) for pair in truths)
    assert sum(HARMLESS in pair for pair in truths) >= len(PIECES) // 3
