"""`compilediag stats` and `compilediag trend`, as typed."""

import time
from collections.abc import Callable
from pathlib import Path

import pytest
from many_receipts import Change, content, measured, written

from compilediag.cli import main
from compilediag.errors import UsageError
from compilediag.extensions.fleet import options
from compilediag.extensions.fleet.options import parse_moment
from compilediag.views.format import format_pair, format_quantity

Run = Callable[..., str]


def change_of(number: int) -> Change:
    """Slower by a fifth and with a recompile more from receipt 40 on."""
    late = number >= 40
    median = (0.5 + (number * 7 % 11 - 5) / 1000) * (1.2 if late else 1)
    return measured(
        steps__median=median,
        steps__p90=median * 1.1,
        throughput__steps_per_s=1 / median,
        compile__recompiles=2 if late else 1,
        header__provenance__git_message_short="use \x1b[31mflex" if late else "before",
        environment__torch="2.14.0" if late else "2.13.0",
    )


@pytest.fixture(scope="module")
def receipts(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Seventy receipts, and files that are none."""
    folder = written(tmp_path_factory.mktemp("many") / "receipts", range(70), change_of)
    (folder / "torn.json").write_bytes(content(3)[:500])
    (folder / "other.json").write_text("{}", encoding="utf-8")
    return folder


@pytest.fixture
def run(receipts: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Run:
    """Runs a command beside the folder and gives what it printed; it must succeed."""
    monkeypatch.chdir(receipts.parent)
    monkeypatch.setenv("COLUMNS", "100")

    def call(*arguments: str) -> str:
        code = main(list(arguments))
        printed = capsys.readouterr()
        assert (code, printed.err) == (0, "")
        return printed.out

    return call


def test_trend_shows_since_when(run: Run) -> None:
    """One screen: what got worse, since when, what else changed, and what to type next."""
    screen = run("trend", "receipts")
    lines = screen.splitlines()
    assert (
        lines[0]
        == "✗ 1 change for the worse · 70 receipts of 1 configuration, 2025-10-09 to 2025-10-12"
    )
    assert "since 2025-10-11 00:53 r00040.json (commit " in lines[2]
    assert "\x1b" not in screen
    assert "\\x1b[31mflex" in screen
    words = " ".join(screen.split())
    assert "step time 500 ms → 600 ms +20 %" in words
    assert "recompiles 1 → 2 +1" in words
    assert "also changed there: torch 2.13.0 → 2.14.0" in words
    assert "unchanged: slow steps" in words
    assert "1 damaged or half-written: torn.json" in words
    assert "1 other JSON: other.json" in words
    assert "next: compilediag diff receipts/r00039.json receipts/r00040.json" in words
    assert "git log --oneline" in words
    assert len(lines) <= 24


def test_trend_of_one_measure(run: Run) -> None:
    """Asked for by name, with a bound that nothing reaches."""
    screen = run("trend", "receipts", "--measure", "step_s", "--at-least", "50")
    assert screen.startswith("✓ nothing got worse and stayed so")
    assert "unchanged: step time" in screen


def test_stats_are_a_line_a_lane(run: Run) -> None:
    """Medians of the lane, checks of the last hundred runs, and the next command."""
    screen = run("stats", "receipts")
    head, row = screen.splitlines()[2:4]
    columns = "configuration runs throughput step goodput host memory checks"
    assert head.split() == columns.split()
    assert row.split()[:2] == ["gpt-small/train", "fp32"]
    assert row.endswith("774 MiB  70 of 70")
    assert "not counted: 2 files" in screen
    assert "next: compilediag history trend receipts" in screen


def test_stats_by_preset(run: Run) -> None:
    """All lanes of a preset in one line."""
    assert "(no preset)      70" in run("stats", "receipts", "--by", "preset")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("trend", "nowhere"), "there is no folder nowhere"),
        (
            ("trend", "receipts", "--configuration", "vit"),
            "none of the 70 receipts in receipts fits: configurations gpt",
        ),
        (("trend", "receipts", "--since", "soon"), "--since 'soon' is no time"),
        (("trend", "receipts", "--measure", "speed"), "there is no measure 'speed'"),
        (("stats", "--configuration", "x"), "there is no .compilediag here"),
    ],
)
def test_an_error_is_one_sentence(arguments, message, receipts, capsys, monkeypatch) -> None:
    """Exit code 2, and what to do instead."""
    monkeypatch.chdir(receipts.parent)
    assert main(list(arguments)) == 2
    assert message in capsys.readouterr().err


def test_moments() -> None:
    """Days, times with and without a zone, and stretches before now."""
    now = 1_800_000_000.0
    assert parse_moment("--since", "30d", now) == now - 30 * 86400
    assert parse_moment("--since", "2w", now) == now - 14 * 86400
    assert parse_moment("--since", "1970-01-02", now) == 86400
    assert parse_moment("--since", "1970-01-01T01:00:00Z", now) == 3600
    assert parse_moment("--since", None, now) is None
    with pytest.raises(UsageError):
        parse_moment("--since", "30 days", now)
    assert time.gmtime(parse_moment("--until", "2026-11-01", now) or 0)[:3] == (2026, 11, 1)


@pytest.mark.parametrize(
    ("value", "unit", "text"),
    [
        (0.1004, "s", "100 ms"),
        (0.9996, "s", "1.00 s"),
        (61.25, "s", "61.2 s"),
        (7200.0, "s", "2 h"),
        (0.0000123, "s", "12.3 us"),
        (812000000, "bytes", "774 MiB"),
        (1023.9 * 1024, "bytes", "1.00 MiB"),
        (0.8034, "share", "80.3 %"),
        (41234.5, "tokens/s", "41,234 tokens/s"),
        (0.0, "count", "0"),
        (1.128, "ratio", "1.13"),
    ],
)
def test_quantities_have_three_figures(value: float, unit: str, text: str) -> None:
    """A change of a percent can be seen, and no more is pretended."""
    assert format_quantity(value, unit) == text


def test_counts_are_shown_in_full() -> None:
    """A thousand and one is not a thousand."""
    assert format_pair(1000, 1001, "count", "->") == "1,000 -> 1,001"


def test_an_uncertain_beginning_is_shown_as_a_range(tmp_path: Path, run: Run) -> None:
    """A small slowdown in much noise: between which receipts, and the most likely one."""

    def change(number: int) -> Change:
        noise = (number * 7 % 11 - 5) / 100 + (number * 5 % 13 - 6) / 200
        return measured(steps__median=(1 + noise) * (1.07 if number >= 60 else 1))

    folder = str(written(tmp_path / "noisy\x1b[31m", range(120), change))
    screen = run("trend", folder, "--measure", "step_s", "--all")
    words = " ".join(screen.split())
    assert "began between 2025-10-1" in words
    assert "receipts, most likely r000" in words
    assert "\x1b" not in screen


def test_what_was_undone_and_what_just_began(tmp_path: Path, run: Run) -> None:
    """A recompile that came and went is listed on request, with its end."""

    def change(number: int) -> Change:
        recompiles = 6 if 20 <= number < 40 else 1
        return measured(compile__recompiles=recompiles, compile__graph_breaks=1 + 4 * (number > 58))

    folder = str(written(tmp_path / "undone", range(60), change))
    brief, full = run("trend", folder), run("trend", folder, "--all")
    assert brief.startswith("! the newest receipts are worse")
    assert "only the newest receipt, since" in brief
    assert "+1 more change, undone or older: --all" in brief
    assert "1 → 6" not in brief
    assert "recompiles  1 → 6  +5" in full
    assert "until 2025-10-11 00:53 r00040.json" in " ".join(full.split())


def test_progress_is_shown_on_a_terminal(receipts: Path, monkeypatch, capsys) -> None:
    """While files are read, and wiped when that is over; nothing in a pipe."""
    monkeypatch.setattr(options, "_EVERY", 20)
    monkeypatch.setattr("sys.stderr.isatty", lambda: True)
    assert main(["stats", str(receipts)]) == 0
    words = capsys.readouterr().err
    assert "reading receipts 20 of 72" in words
    assert words.endswith("\r\x1b[K")
