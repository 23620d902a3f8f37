"""The suite of liars and mutants: what it makes, and how it tells a wrong result."""

import ast
import math
import sys
from collections import Counter
from pathlib import Path

import pytest
from sources import ROOT

sys.path.insert(0, str(ROOT / "tools" / "liars"))

from campaign import find_failures, find_families, read_results
from liars import edit, iterate_honest, iterate_liars
from mutants import make_mutant
from plain_runs import PlainRun, compare, looks_better
from programs import PIECES, SCENARIOS, make_program
from proofs_page import insert_tables, write_tables

SEEDS = range(120)


def test_programs_are_small_and_of_every_piece() -> None:
    programs = [make_program(seed) for seed in SEEDS]
    assert programs[7] == make_program(7)
    assert {name for program in programs for name in program.mended} >= {*PIECES}
    for program in programs:
        for text in (program.before, program.after):
            ast.parse(text)
            assert sum(map(bool, text.splitlines())) <= 60 or program.pieces[0] in SCENARIOS
        assert ast.unparse(ast.parse(program.before)) != ast.unparse(ast.parse(program.after))
    assert sum(program.environment for program in programs) <= len(programs) // 4


def test_mutants_are_random_and_known_by_their_seed() -> None:
    source = make_program(3).after
    mutants = [make_mutant(source, seed) for seed in SEEDS]
    assert mutants[5] == make_mutant(source, 5)
    found = [mutant for mutant in mutants if mutant]
    assert len({mutant.source for mutant in found}) > len(SEEDS) * 0.6
    assert len({mutant.kind for mutant in found}) >= 12
    plain = ast.unparse(ast.parse(source))
    for mutant in found:
        ast.parse(mutant.source)
        assert mutant.source != plain


def test_liars_are_many_and_small() -> None:
    liars = [*iterate_liars()]
    assert len(liars) >= 40
    assert len({liar.kind for liar in liars}) >= 10
    assert max(Counter((liar.kind, liar.name) for liar in liars).values()) == 1
    for liar in liars:
        for text in (liar.before, liar.after, *(edit(x, liar.elsewhere) for x in liar[2:4])):
            compile(text, liar.name, "exec")
            assert len(text.splitlines()) <= 35
    assert len([*iterate_honest()]) == 7


def test_an_edit_needs_its_place() -> None:
    with pytest.raises(ValueError, match="0 places"):
        edit("a = 1\n", [("b", "c")])


def run(*lines: str, code: int | None = 0, error: str = "", **values: float) -> PlainRun:
    held = {name: [value] for name, value in values.items()}
    return PlainRun(code, [*lines], held, {}, error)


@pytest.mark.parametrize(
    ("after", "kind"),
    [
        (run("loss 0.5000", w=1.0), "equal"),
        (run("loss 0.5001", w=1.0), "smaller"),  # the last place may be rounding
        (run("loss 0.5100", w=1.0), "wrong"),
        (run("loss nan", w=1.0), "wrong"),
        (run("lost 0.5000", w=1.0), "wrong"),
        (run(w=1.0), "wrong"),
        (run("loss 0.5000", w=1.00001), "equal"),
        (run("loss 0.5000", w=1.0005), "smaller"),
        (run("loss 0.5000", w=1.01), "wrong"),
        (run("loss 0.5000"), "equal"),  # a renamed attribute
        (run("loss 0.5000", w=1.0, code=3), "wrong"),
        (run(code=1, error="ValueError: x"), "crashes"),
        (run(code=None), "hangs"),
    ],
)
def test_runs_are_compared(after: PlainRun, kind: str) -> None:
    assert compare(run("loss 0.5000", w=1.0), after).kind == kind


def test_times_and_noise_are_left_out() -> None:
    before = run("step 1 loss 0.5 (0.31 s) 17.2 it/s", "seed 41", began=1.0)
    again = run("step 1 loss 0.5 (0.44 s) 12.9 it/s", "seed 97", began=2.0)
    after = run("step 1 loss 0.5 (9.70 s) 3.1 it/s", "seed 12", began=3.0)
    assert compare(before, after, again).kind == "equal"
    assert compare(before, after).kind == "wrong"
    assert (
        compare(before, run("step 2 loss 0.5 (0.31 s) 17.2 it/s", "seed 1"), again).kind == "wrong"
    )


def test_a_saved_value_that_is_lost_is_wrong() -> None:
    before = PlainRun(0, [], {"m.pt:['w']": [1.0], "w": [1.0]}, {})
    assert compare(before, PlainRun(0, [], {"m.pt:['w']": [1.0]}, {})).kind == "equal"
    found = compare(before, PlainRun(0, [], {"w": [1.0]}, {}))
    assert (found.kind, found.ratio) == ("wrong", math.inf)


def test_better_is_less_of_something_and_more_of_nothing() -> None:
    assert looks_better({"recompiles": 2}, {"recompiles": 1})
    assert not looks_better({"recompiles": 2}, {"recompiles": 2})
    assert not looks_better({"recompiles": 2}, {"recompiles": 1, "graph breaks": 1})


def test_false_proofs_are_found_and_tables_written() -> None:
    base = {
        "kind": "k",
        "what": "",
        "where": "",
        "better": True,
        "environment": False,
        "reason": "r",
    }
    base |= {"plain_s": 1.0, "certify_s": 2.0}
    proved, refused = {**base, "verdict": "proved"}, {**base, "verdict": "refused"}
    results = [
        {**refused, "key": "liar 0", "group": "liar", "truth": "other results"},
        {**proved, "key": "mutant 1.1", "group": "mutant", "truth": "smaller"},
        {**proved, "key": "improving 1", "group": "improving", "truth": "equal"},
        {**refused, "key": "improving 2", "group": "improving", "truth": "equal"},
    ]
    assert find_failures(results) == []
    lie = {**proved, "key": "mutant 1.2", "group": "mutant", "truth": "wrong"}
    assert find_failures([*results, lie]) == [lie]
    assert find_failures([{**proved, "group": "liar", "truth": "less is compiled"}])
    tables = write_tables(results, "make liars")
    assert "| changes that improve and change nothing | 2 | 1 (50.0%) | 1 | 0 |" in tables
    page = insert_tables("# By hand\n", tables)
    assert insert_tables(page, tables) == page
    assert page.startswith("# By hand\n")


def test_a_line_that_was_cut_off_is_judged_again(tmp_path: Path) -> None:
    path = tmp_path / "results.jsonl"
    path.write_text('{"key": "liar 1", "x": 1}\n{"key": "liar 2", "x"', encoding="utf-8")
    assert [*read_results(path)] == ["liar 1"]


def test_cases_are_found_by_key() -> None:
    keys = ["liar 1", "liar 2", "improving 3", "mutant 3.2", "mutant 5.0"]
    families = find_families(keys)
    assert sorted(case.key for family in families for case in family.cases) == sorted(keys)
    assert {family.seed for family in families} == {0, 3, 5}
    for case in (case for family in families for case in family.cases):
        assert case.after not in {family.before for family in families}
        assert case.group == case.key.split()[0]
