"""Groups and templates of the cadence probe, and the plan made from them."""

import pytest

from compilediag.errors import UsageError
from compilediag.extensions.cadence.plan import (
    MIN_FIRES,
    QUIET,
    GroupSelection,
    ProbeGroup,
    compute_min_steps,
    count_warmup_steps,
    make_plan,
    parse_groups,
    select_groups,
    set_argument,
)
from compilediag.timeline.recorded import CadenceGroup


def declared(name: str, every: int = 250, shift: int | None = 0) -> CadenceGroup:
    return CadenceGroup(0.0, 0, name, every, 0, every, (), shift)


@pytest.mark.parametrize(
    ("template", "typed", "expected"),
    [
        ("--every {n}", "train.py", "train.py --every 7"),
        ("--every {n}", "train.py --every 250 --lr 1", "train.py --every 7 --lr 1"),
        ("--every {n}", "train.py --every=250", "train.py --every=7"),
        ("--every={n}", "train.py --every 250", "train.py --every 7"),
        ("--every={n}", "train.py", "train.py --every=7"),
        ("--every {n}", "train.py --every-other 3", "train.py --every-other 3 --every 7"),
        ("log.every={n}", "train.py log.every=9 x=1", "train.py log.every=7 x=1"),
        ("log.every={n}", "train.py", "train.py log.every=7"),
        ("--at '{n} steps'", "train.py --at 9", "train.py --at '7 steps'"),
        ("--metrics all --every {n}", "train.py", "train.py --metrics all --every 7"),
        ("--every {n}", "-m --every", "-m --every --every 7"),
        ("--every {n}", "train.py --every", "train.py --every --every 7"),
    ],
)
def test_templates_reach_the_command_line(template: str, typed: str, expected: str) -> None:
    """An option that is there gets the new value in its place, any other goes to the end; TARGET
    itself is never touched."""
    import shlex

    assert list(set_argument(shlex.split(typed), template, 7)) == shlex.split(expected)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("entropy=--every", "has no {n}"),
        ("entropy=-5", "has no {n}"),
        ("entropy=env:{n}", "is not env:VARIABLE={n}"),
        ("entropy=env:2X={n}", "is not env:VARIABLE={n}"),
        ("entropy=--every '{n}", "cannot be read"),
        ("=--every {n}", "does not begin with the group's name"),
        ("en\ntropy=--every {n}", "does not begin with the group's name"),
    ],
)
def test_a_wrong_template_is_an_error(text: str, message: str) -> None:
    """In one sentence that names it, before anything runs."""
    with pytest.raises(UsageError, match=message):
        parse_groups([text], {})


def test_two_groups_of_one_name_are_an_error() -> None:
    """Also where one of them is the code's own."""
    with pytest.raises(UsageError, match="two groups named 'a'"):
        parse_groups(["a=--x {n}", "a=--y {n}"], {})
    with pytest.raises(UsageError, match="the code declares a group named 'a' itself"):
        select_groups(parse_groups(["a=--x {n}"], {}), [declared("a")])


def test_an_unknown_group_is_an_error_that_names_the_known() -> None:
    """A name alone chooses among the groups that the code declares."""
    code = [declared("entropy"), declared("norms", shift=1)]
    assert [group.name for group in select_groups(GroupSelection((), ("norms",)), code)] == [
        "norms"
    ]
    norms = ProbeGroup(name="norms", origin="code", own_every=250, shift=1)
    assert select_groups(GroupSelection(), code)[1] == norms
    with pytest.raises(UsageError, match="no group named 'loss'; it declares 'entropy', 'norms'"):
        select_groups(GroupSelection((), ("loss",)), code)


@pytest.mark.parametrize("warmup", [0, 1, 3, 10])
def test_every_group_fires_three_times_after_warmup(warmup: int) -> None:
    """Whether a program counts from 0 or from 1, with quiet steps in between; one step fewer than
    the fewest is refused with the number that is needed."""
    wanted = compute_min_steps(warmup)
    for steps in range(wanted, wanted + 300):
        plan = make_plan(steps, warmup)
        finished = range(steps)
        assert len(range(plan.first, steps, plan.every)) >= MIN_FIRES
        assert warmup + QUIET <= plan.first < plan.every
        for begin in (0, plan.every - 1):  # step % n == 0 counted from 0, and from 1
            after = [step for step in finished[begin :: plan.every] if step >= warmup]
            assert len(after) >= MIN_FIRES
            assert plan.every > QUIET
    with pytest.raises(UsageError, match=f"{wanted - 1} steps.*{wanted} steps are needed"):
        make_plan(wanted - 1, warmup)


def test_without_a_step_the_error_says_how_to_mark_them() -> None:
    """A loop that nothing marks, or a target that is not Python."""
    with pytest.raises(UsageError, match="no step was seen"):
        make_plan(0, 0)


def test_warmup_is_what_compiles_at_the_start() -> None:
    """And one more step; not all of a program that compiles always; the user's word wins."""
    assert count_warmup_steps([0, 1, 7], 60, None) == 3
    assert count_warmup_steps([], 60, None) == 1
    assert count_warmup_steps(range(60), 60, None) == 15
    assert count_warmup_steps([0], 60, 10) == 10


def test_the_command_line_wins_over_the_table() -> None:
    """By name; the other groups of pyproject.toml stay."""
    found = parse_groups(["a=--new {n}"], {"a": "--old {n}", "b": "env:B={n}"})
    assert {group.name: group.template for group in found.templates} == {
        "b": "env:B={n}",
        "a": "--new {n}",
    }
    assert parse_groups(["a"], {"a": "--old {n}"}) == GroupSelection((), ("a",))
