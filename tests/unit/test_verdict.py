"""The verdict screen: golden screens of whole receipts, its size, and text that attacks terminals.

Screens are compared with tests/data/views/*.txt. After a deliberate change:
`python tests/unit/test_verdict.py` writes them anew; read the difference before you commit it.
"""

from __future__ import annotations

import json
import re
import unicodedata
from pathlib import Path

import msgspec
import pytest
from msgspec.structs import replace

from compilediag.receipt.schema.compiles import CandidateRecord, Place
from compilediag.receipt.schema.receipt import Receipt
from compilediag.views.style import RenderOptions
from compilediag.views.text import display_width
from compilediag.views.verdict import SCREEN_LINES, render

DATA = Path(__file__).parents[1] / "data" / "views"
CASES = ("findings", "clean", "blind", "disagree", "killed", "many", "hostile", "breaks")
SHAPES = {
    "wide": RenderOptions(width=120),
    "screen": RenderOptions(),
    "narrow": RenderOptions(width=60),
    "ascii": RenderOptions(width=80, ascii_only=True),
    "color": RenderOptions(color=True),
    "all": RenderOptions(),
}
ANSI = re.compile(r"\x1b\[[0-9;]*m")


def receipt(name: str) -> Receipt:
    return msgspec.convert(json.loads((DATA / f"{name}.json").read_text(encoding="utf-8")), Receipt)


def screens(name: str) -> str:
    """Every shape of one receipt's screen, one after the other."""
    made = receipt(name)
    return "".join(
        f"--- {shape}\n{render(made, options, complete=shape == 'all')}"
        for shape, options in SHAPES.items()
    )


@pytest.mark.parametrize("name", CASES)
def test_golden(name: str) -> None:
    """Each kind of receipt gives exactly the screens that were read and approved."""
    assert screens(name) == (DATA / f"{name}.txt").read_text(encoding="utf-8")


@pytest.mark.parametrize("name", sorted(set(CASES) - {"hostile"}))
def test_fits_one_screen(name: str) -> None:
    """At 100 columns the verdict is one screen, however much was found."""
    assert render(receipt(name)).count("\n") <= SCREEN_LINES


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("width", [40, 60, 80, 100, 120])
def test_no_line_is_wider_than_the_terminal(name: str, width: int) -> None:
    """No line is broken by the terminal instead of by us, wide characters counted as two."""
    for line in render(receipt(name), RenderOptions(width=width), complete=True).splitlines():
        assert display_width(line) <= width, line


@pytest.mark.parametrize("color", [False, True])
def test_hostile_text_cannot_act_on_the_terminal(color: bool) -> None:
    """Escapes, bells, carriage returns and bidi overrides of the target are shown, not sent."""
    drawn = render(receipt("hostile"), RenderOptions(color=color), complete=True)
    plain = ANSI.sub("", drawn) if color else drawn
    acting = {char for char in plain if unicodedata.category(char) in ("Cc", "Cf", "Zl", "Zp")}
    assert acting == {"\n"}
    assert "\\x1b[2J" in plain
    assert "\\u202e" in plain


def test_our_own_colours_are_the_only_escapes() -> None:
    """With colour every escape is a style and every style is ended on its line."""
    drawn = render(receipt("hostile"), RenderOptions(color=True))
    for line in drawn.splitlines():
        codes = ANSI.findall(line)
        assert "\x1b" not in ANSI.sub("", line)
        assert not codes or codes[-1] == "\x1b[0m"


def test_colour_changes_nothing_but_colour() -> None:
    """Without colour the same characters stand at the same places."""
    for name in CASES:
        made = receipt(name)
        plain = render(made)
        assert ANSI.sub("", render(made, RenderOptions(color=True))) == plain


def test_ascii_holds_ascii_only() -> None:
    """A terminal that shows ASCII only gets ASCII only, hostile text included."""
    for name in CASES:
        assert render(receipt(name), RenderOptions(width=80, ascii_only=True)).isascii()


def test_root_makes_paths_relative() -> None:
    """Files below the working directory are shown as the user would type them."""
    made = receipt("breaks")
    drawn = render(made, RenderOptions(root="/usr/lib/python3/site-packages"))
    assert " lib/blocks.py:88" in drawn


def test_next_commands_find_the_same_receipt() -> None:
    """After `show PATH` the commands that lead on carry the path."""
    drawn = render(receipt("findings"), RenderOptions(width=120), suffix=" 'my runs/1'")
    assert "compilediag explain 1 'my runs/1'" in drawn
    assert "compilediag show --timeline 'my runs/1'" in drawn


def test_unmeasured_cost_is_not_zero() -> None:
    """Null means not measured: it is neither 0 s nor a share of the wall time."""
    made = receipt("findings")
    time_s = msgspec.structs.replace(made.compile.time_s, recompile=None)
    section = msgspec.structs.replace(made.compile, time_s=time_s)
    drawn = render(msgspec.structs.replace(made, compile=section, goodput=None))
    assert drawn.splitlines()[0].endswith("3 recompiles in 12 steps (their cost was not measured)")


if __name__ == "__main__":
    for case in CASES:
        (DATA / f"{case}.txt").write_text(screens(case), encoding="utf-8")


def test_a_setting_is_one_line_to_copy() -> None:
    """However long: a line that we broke could not be pasted into a shell. The second finding with
    the same variable brings one line for both."""
    made = receipt("findings")
    found = [
        replace(item, fix=replace(item.fix, candidates=(CandidateRecord(**LONG, value=value),)))
        for item, value in zip(made.findings, (f"L['{'n' * 90}']", "L['x']:0"), strict=False)
    ]
    lines = render(replace(made, findings=tuple(found)), RenderOptions(width=60)).splitlines()
    exports = [line.strip().removeprefix("no edit: ") for line in lines if "export" in line]
    assert exports == [
        f"export SOURCES=\"L['{'n' * 90}']\"",
        "export SOURCES=\"L['x']:0\"",
        f"export SOURCES=\"L['{'n' * 90}'],L['x']:0\"",
    ]


LONG = {"kind": "environment", "setting": "SOURCES", "risk": ""}


def test_what_happens_over_the_limit() -> None:
    """With fullgraph=True torch raises instead of running eager."""
    made = receipt("breaks")
    flags = replace(made.header.lane.numerics_flags, fullgraph=True)
    lane = replace(made.header.lane, numerics_flags=flags)
    whole = replace(made, header=replace(made.header, lane=lane))
    assert "over that it runs eager" in render(made)
    assert "over that torch raises (fullgraph=True)" in render(whole)


def test_who_changed_a_value_in_a_library_can_be_seen() -> None:
    """Only of the latest run, which can be repeated, and where no line of the program is known."""
    made = receipt("findings")
    first = made.findings[0]
    place = Place(file="/venv/lib/python3.11/site-packages/peft/layer.py", line=7, function="f")
    hidden = replace(
        first,
        rule="CD106",
        location=place,
        ownership="third_party",
        evidence={**first.evidence, "writers": []},
    )
    shown = replace(made, findings=(hidden,))
    assert "compilediag run --witness" in render(shown)
    assert "--witness" not in render(made)
    assert "--witness" not in render(shown, suffix=" r.json")
