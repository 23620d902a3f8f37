"""Pattern files: templates become bounded expressions, and an error message names what is wrong."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from compilediag.errors import UsageError
from compilediag.extensions.train_logs.patterns import (
    RANK,
    LinePattern,
    load_built_in,
    load_patterns,
    parse_patterns,
)
from compilediag.extensions.train_logs.read import read_train_log
from compilediag.extensions.train_logs.receipt_parts import compute_rate, compute_step_s

MINE = """
[[line]]
trainer = "mine"
marker = "it/step"
needs = ["step", "loss"]
[line.fields]
step = "[<integer>/"
loss = "L=<number>"
step_ms = "took <number> ms"
tokens_per_s = ["tok/s <number>", "tps=<number>"]
"""


def test_a_trainer_that_is_not_known() -> None:
    """A pattern file teaches its lines, in the spelling of each."""
    lines = [
        f"[{number}/900] it/step L=2.{number} took    125.5 ms {spelled}\n"
        for number in range(1, 10)
        for spelled in (["tok/s 1,000", "tps=1e3"][number % 2],)
    ]
    log = read_train_log(["".join(lines).encode()], parse_patterns(MINE, "mine.toml"))
    assert (log.trainer, log.ended_steps, compute_step_s(log, 1)) == ("mine", 9, 0.1255)
    assert compute_rate(log, "tokens_per_s", 1) == 1000


def test_the_users_patterns_come_first(tmp_path: Path) -> None:
    """And the package's stay beside them. Nothing is read with half of the patterns."""
    path = tmp_path / "mine.toml"
    path.write_text(MINE)
    found = load_patterns(str(path))
    assert (found[0].trainer, found[1:]) == ("mine", load_built_in())
    assert load_patterns(None) == load_built_in()
    with pytest.raises(UsageError, match="cannot be read"):
        load_patterns(str(tmp_path / "none.toml"))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("line = 3", "must hold tables called [[line]]"),
        ("[[line]", "is not TOML"),
        ("[[line]]\ncolour = 1", "number 1: Object contains unknown field `colour`"),
        ('[[line]]\nmarker = "ab"\nneeds=["step"]', "number 1: it needs 'step'"),
        ('[[line]]\nmarker = "a"\nfields.step = "ab <integer>"', "3 characters or more"),
        ('[[line]]\nmarker = "abc"\nfields.loss = "ab <number>"', 'no field "step"'),
        ('[[line]]\nmarker = "abc"\nfields.step = "ab"', "must hold <number> or <integer>, once"),
        ('[[line]]\nmarker = "abc"\nfields.step = "<integer>"', "begin with the text before"),
        ('[[line]]\nmarker = "abc"\nfields.step = "a <number> <number>"', "once"),
        ('[[line]]\nmarker = "abc"\nfields.time = "at <number>"', "must hold <timestamp>, once"),
        ('[[line]]\nmarker = "abc"\nfields.speed = "ab <number>"', "no field 'speed'; there are"),
        ('[[line]]\nmarker = "abc"\nfields.step = 3', "Expected `str | array`, got `int`"),
        ('[[line]]\nkind = "row"', "Invalid enum value 'row' - at `$.kind`"),
        ('[[line]]\nkind = "bar"', '"before" belongs to'),
        (f'[[line]]\nmarker = "abc"\nfields.step = "{"x" * 300}<integer>"', "more than 200"),
        ('[[line]]\nmarker = "abc"\nfields = 3', "Expected `object`, got `int` - at `$.fields`"),
    ],
)
def test_what_is_wrong_with_a_pattern_file(text: str, message: str) -> None:
    """In one sentence that names the file and the table."""
    with pytest.raises(UsageError, match=re.escape(message)) as error:
        parse_patterns(text, "mine.toml")
    assert "mine.toml" in str(error.value)


@pytest.mark.parametrize(
    ("line", "loss"),
    [
        ("loss: 2", "2"),
        ("loss:      2.5 ", "2.5"),
        ("loss: -1.5e-05,", "-1.5e-05"),
        ("loss: 1,234,567.5", "1,234,567.5"),
        ("loss: nan", "nan"),
        ("loss: -inf |", "-inf"),
        ("loss: 0.12345678901234567890123", "0.12345678901234567890123"),
        ("loss: 1.2.3", None),
        ("loss: N/A", None),
        ("loss: nano", None),
        ("loss: tensor(2.0)", None),
        ("loss: " + "9" * 30, None),
        ("lossless: 2", None),
        ("loss: loss: 3", "3"),
    ],
)
def test_figures(line: str, loss: str | None) -> None:
    """A number in the whole of its length, or none: never a part of one."""
    (pattern,) = parse_patterns(
        '[[line]]\nmarker = "loss"\nneeds = ["loss"]\nfields.loss = "loss: <number>"', "x.toml"
    )
    assert pattern.find_figures(line).get("loss") == loss


def _repeats(pattern: re.Pattern[str]) -> Iterator[tuple[int, int, int]]:
    """(least, most, repetitions around it) of every repetition in an expression."""
    parser: Any = getattr(re, "_parser")  # noqa: B009 - it has no public name

    def walk(items: Any, inside: int) -> Iterator[tuple[int, int, int]]:
        for operation, argument in items:
            name = str(operation)
            if name in {"MAX_REPEAT", "MIN_REPEAT"}:
                yield argument[0], int(argument[1]), inside
                yield from walk(argument[2], inside + (int(argument[1]) > 1))
            elif name == "SUBPATTERN":
                yield from walk(argument[3], inside)
            elif name == "BRANCH":
                for branch in argument[1]:
                    yield from walk(branch, inside)
            elif name in {"ASSERT", "ASSERT_NOT"}:
                yield from walk(argument[1], inside)

    yield from walk(parser.parse(pattern.pattern), 0)


def _expressions(patterns: tuple[LinePattern, ...]) -> Iterator[re.Pattern[str]]:
    for pattern in patterns:
        for expressions in pattern.expressions.values():
            yield from expressions
        if pattern.bar_name is not None:
            yield pattern.bar_name


@pytest.mark.skipif(not hasattr(re, "_parser"), reason="Python 3.11 and newer tell")
def test_no_repetition_is_unbounded_or_stands_inside_another() -> None:
    """So that no line takes more than linear time; but three digits after each comma are fixed."""
    (mine,) = parse_patterns(MINE, "mine.toml")
    found = [
        item
        for pattern in (*_expressions((*load_built_in(), mine)), RANK)
        for item in _repeats(pattern)
    ]
    assert found
    assert max(most for _, most, _ in found) <= 200
    assert {(least, most) for least, most, inside in found if inside} <= {(3, 3)}


def test_the_table_holds_the_trainers_that_the_page_names() -> None:
    """docs/howto/trainlog.md lists them."""
    assert {pattern.trainer for pattern in load_built_in()} == {
        "nanogpt", "nanochat", "huggingface", "lightning", "megatron", "torchtitan", "maxtext",
        "litgpt", "torchtune", "deepspeed", "deepspeed-pipeline", "timm", "mmengine", "detectron2",
        "nemo",
    }  # fmt: skip
