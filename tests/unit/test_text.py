"""Text of the target is made safe and made to fit."""

import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from compilediag.views.style import RenderOptions
from compilediag.views.text import clean, measure_width, pad, truncate, wrap


@pytest.mark.parametrize(
    ("raw", "shown"),
    [
        ("pos.pe", "pos.pe"),
        ("\x1b[31mred\x1b[0m", "\\x1b[31mred\\x1b[0m"),
        ("\x9b31m", "\\x9b31m"),
        ("a\nb\tc\rd", "a\\nb\\tc\\rd"),
        ("\u202egpj.exe", "\\u202egpj.exe"),
        ("\u2066x\u2069", "\\u2066x\\u2069"),
        ("\u2028\u200b\ufeff", "\\u2028\\u200b\\ufeff"),
        ("\U000e0041", "\\U000e0041"),
        ("\ud800", "\\ud800"),
        ("日本 → é", "日本 → é"),
    ],
)
def test_clean_spells_out_what_acts_or_hides(raw: str, shown: str) -> None:
    """Controls, bidi, invisible and lone surrogates become escapes; letters stay."""
    assert clean(raw) == shown


@given(st.text(st.characters(codec=None), max_size=200))
def test_cleaned_text_is_harmless_and_encodable(raw: str) -> None:
    """Whatever comes in, what goes out has no acting character and encodes as UTF-8."""
    shown = clean(raw)
    shown.encode("utf-8")
    hidden = ("Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp")
    assert not [char for char in shown if unicodedata.category(char) in hidden]
    assert clean(raw, ascii_only=True).isascii()


def test_clean_is_bounded() -> None:
    """A text of a megabyte takes no more than its limit, and shows that it was cut."""
    assert clean("x" * 1_000_000, limit=10) == "x" * 10 + "…"
    assert clean("x" * 11, limit=10, ascii_only=True) == "x" * 10 + "..."
    assert clean("x" * 10, limit=10) == "x" * 10


def test_ascii_spells_our_own_signs() -> None:
    """Arrows of our own sentences stay readable where only ASCII can be shown."""
    assert clean("1 → 2 · é", ascii_only=True) == "1 -> 2 | \\xe9"


def test_wide_and_combining_characters_are_counted_as_drawn() -> None:
    """Wide characters take two columns, combining marks none."""
    assert measure_width("日本") == 4
    assert measure_width("e\u0301") == 1
    assert pad("日", 4) == "日  "


@pytest.mark.parametrize(
    ("text", "width", "keep_end", "shown"),
    [
        ("abcdef", 6, False, "abcdef"),
        ("abcdef", 4, False, "abc…"),
        ("/a/b/model.py", 9, True, "…model.py"),
        ("日本語", 4, False, "日…"),
    ],
)
def test_fit_cuts_to_columns(text: str, width: int, keep_end: bool, shown: str) -> None:
    """A text is cut at the end, a path at its start, never wider than the limit."""
    assert truncate(text, width, keep_end=keep_end) == shown
    assert measure_width(shown) <= width


@given(st.text("ab 日", max_size=80), st.integers(2, 30))
def test_wrapped_lines_fit_and_lose_nothing(text: str, width: int) -> None:
    """No line is too wide, and every character but the blanks at line ends is there."""
    lines = wrap(text, width)
    assert all(measure_width(line) <= width for line in lines)
    assert "".join(lines).replace(" ", "") == text.replace(" ", "")


def test_what_is_to_be_pasted_is_not_broken() -> None:
    """A blank inside the quotes of a value, or of a command line, would be another one."""
    line = """export SOURCES="L['first']:0, L['second']:1\""""
    assert wrap(f"start it with: {line} (it holds)", 20) == ["start it with:", line, "(it holds)"]
    command = "fix train.py --data here --lr 1"
    assert RenderOptions(20).wrap_commands([command]) == [f"  next: compilediag {command}"]


def test_hang_indents_the_other_lines() -> None:
    """The first line has its label, the others their indent."""
    assert RenderOptions(12).wrap("one two three", "fix: ") == ["fix: one two", "     three"]
