"""Random programs whose recompiles and causes are known by construction, as compilediag sees them.

`make programs` runs many more.
"""

from pathlib import Path

import pytest
from random_programs import HOSTS, VALUES, judged, program_of, shown

PROGRAMS = range(18)
CAMPAIGN = range(500)


@pytest.mark.parametrize("number", PROGRAMS)
def test_causes_are_those_of_the_construction(number: int, tmp_path: Path) -> None:
    """All named, none invented, the first of each recompile right, a finding for each."""
    program = program_of(number)
    found = judged(program, tmp_path)
    assert not found.problems, "\n".join((*found.problems, shown(program)))


def test_the_campaign_has_everything() -> None:
    """Each kind of value in each storage, every host, combinations and values new together."""
    programs = [program_of(number) for number in CAMPAIGN]
    assert {program.host for program in programs} == set(HOSTS)
    assert {piece.kind for program in programs for piece in program.pieces} >= set(VALUES)
    expected = [item for program in programs for item in program.expected]
    assert sum(not item.novel for item in expected) > len(expected) // 20
    assert sum(len(item.novel) > 1 for item in expected) > len(expected) // 20
    assert any(piece.gate is not None for program in programs for piece in program.pieces)
