"""Pages: whole without a network, small, and inert whatever the target's texts are."""

import hashlib
import json
import re
from base64 import b64encode
from html.parser import HTMLParser
from pathlib import Path

import msgspec
import pytest
from screens import CASES, VIEWS, acting, stored

from compilediag import cli
from compilediag.compare.diff import compare
from compilediag.receipt.schema.compiles import ProofFigure, ProofPoint, ProofRecord
from compilediag.receipt.schema.receipt import Receipt
from compilediag.receipt.schema.running import GoodputSection
from compilediag.runs.offline.html_file import load_assets
from compilediag.timeline.invocations import Step
from compilediag.views.diff import show_comparison
from compilediag.views.document import LineChart, Table
from compilediag.views.html.page import render_overview
from compilediag.views.html.report import (
    MAX_POINTS,
    ReportSources,
    SessionTest,
    StepSeries,
    build_session_page,
    build_step_series,
    render_report,
)
from compilediag.views.style import RenderOptions

MAX_BYTES = 500_000
PLAIN = RenderOptions()
NO_END = {"meta", "link", "input", "br", "img"}


def page(found: Receipt, series: StepSeries | None = None) -> str:
    """The report with all that it can show."""
    raw = json.dumps(msgspec.to_builtins(found), indent=1)
    lines = {1: "vscode://file/a%3Cb%22.py:3"}
    sources = ReportSources(series or StepSeries(), raw, "tlparse/index.html", lines)
    return render_report(found, sources, load_assets(), suffix=" run")


class Parsed(HTMLParser):
    """The elements of a page; malformed nesting fails."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.ids: list[str] = []
        self.raw: dict[str, list[str]] = {"script": [], "style": []}
        self._open: list[str] = []
        self.feed(text)
        self.close()
        assert self._open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Records it."""
        self.tags.append((tag, dict(attrs)))
        self.ids += [value or "" for name, value in attrs if name == "id"]
        if tag in self.raw:
            self.raw[tag].append("")
        if tag not in NO_END:
            self._open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """As SVG has them."""
        self.tags.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        """Each closes the innermost one."""
        assert self._open.pop() == tag

    def handle_data(self, data: str) -> None:
        """Text of scripts and styles."""
        if self._open and self._open[-1] in self.raw:
            self.raw[self._open[-1]][-1] += data


@pytest.mark.parametrize("name", CASES)
def test_a_page_fetches_nothing_and_runs_only_ours(name: str) -> None:
    """The policy names the digests of what the page holds; links lead to ids, which are unique."""
    text = page(stored(name))
    assert acting(text) == set()
    assert "<script>alert" not in text
    found = Parsed(text)
    policy = next(
        attrs["content"] or ""
        for tag, attrs in found.tags
        if tag == "meta" and attrs.get("http-equiv") == "Content-Security-Policy"
    )
    assert policy.startswith("default-src 'none'; ")
    assert "unsafe" not in policy
    data, script = found.raw["script"]
    (style,) = found.raw["style"]
    for text, kind in ((script, "script"), (style, "style")):
        digest = b64encode(hashlib.sha256(text.encode()).digest()).decode()
        assert f"{kind}-src 'sha256-{digest}'" in policy
    assert isinstance(json.loads(data), dict)
    for tag, attrs in found.tags:
        assert tag not in {"img", "iframe", "object", "embed", "link", "form", "base"}
        assert not [key for key in attrs if key.startswith("on") or key in ("src", "style")]
        known = r"#|vscode://file/[^?#]+:\d+\Z|tlparse/index\.html(#\[\d+/\d+(_\d+)?\])?\Z"
        assert re.match(known, attrs.get("href") or "#")
    assert len(found.ids) == len(set(found.ids))
    links = {attrs.get("href") or "" for _, attrs in found.tags}
    targets = {link for link in links if link.startswith("#")}
    assert targets <= {f"#{each}" for each in found.ids}
    labels = {attrs["aria-labelledby"] for _, attrs in found.tags if "aria-labelledby" in attrs}
    assert labels <= {*found.ids}
    regions = [attrs["aria-label"] for _, attrs in found.tags if attrs.get("role") == "region"]
    assert len(regions) == len(set(regions)), "each landmark has a name of its own"


HOSTILE = "</script><script>alert(1)</script><img src=x onerror=alert(1)>\u2028\"'`${1}"


def test_hostile_names_of_marks_stay_data() -> None:
    """What the chart shows is JSON: its texts end no element."""
    found = stored("findings")
    event = found.compile.events[0]
    frame = msgspec.structs.replace(event.frame, function=HOSTILE)
    event = msgspec.structs.replace(event, frame=frame, step=1)
    compiled = msgspec.structs.replace(found.compile, events=(event,))
    changed = msgspec.structs.replace(found, compile=compiled)
    parsed = Parsed(page(changed, build_step_series([step(1), step(2)], changed)))
    assert len(parsed.raw["script"]) == 2
    (mark,) = json.loads(parsed.raw["script"][0])["marks"]
    assert HOSTILE[:20] in mark["text"]


def step(number: int, wall_s: float = 0.01) -> Step:
    """A step with one phase."""
    return Step(0, number, float(number), wall_s, None, None, None, 0.0, forward_s=wall_s / 2)


def test_a_long_run_is_thinned_out_and_keeps_its_longest_steps() -> None:
    """100,000 steps stay small; no long one is lost."""
    long = {4321, 50_000, 99_999}
    steps = [step(number, 1.0 if number in long else 0.01) for number in range(100_000)]
    series = build_step_series(steps, stored("findings"))
    drawn = series.columns
    assert len(drawn["steps"]) <= MAX_POINTS
    assert series.steps == 100_000
    assert {*drawn["median"], *drawn["shortest"]} == {10.0}
    assert {n for n, ms in zip(drawn["steps"], drawn["wall"], strict=True) if ms == 1000} == long
    text = page(stored("findings"), series)
    assert len(text.encode()) < MAX_BYTES
    assert "100,000 steps; a point stands for 50: their median, and the band" in text


def test_many_findings_stay_below_the_limit() -> None:
    """100,000 of them: the first are shown, the others counted."""
    found = stored("findings")
    one = found.findings[0]
    many = tuple(msgspec.structs.replace(one, id=f"F{number}") for number in range(1, 100_001))
    text = page(msgspec.structs.replace(found, findings=many))
    assert len(text.encode()) < MAX_BYTES
    assert "and 99,800 more in the receipt" in text
    assert text.count('<article class="card') == 200
    assert "more characters are in the receipt's file" in text


def test_what_a_receipt_lacks_is_left_out() -> None:
    """The smallest one has no section of what was not measured."""
    found = stored("clean")
    bare = msgspec.structs.replace(
        found, steps=None, goodput=None, timings=(), cudagraph=None, findings=()
    )
    text = page(bare)
    assert "No time of a step is at hand." in text
    assert "<p>None.</p>" in text
    for title in ("CUDA graphs", "Ranks", "Cadence probe", "Where the seconds of the run went"):
        assert title not in text


def test_a_proof_is_shown_with_its_points() -> None:
    """The change to copy, and each figure before and after."""
    found = stored("findings")
    finding = found.findings[0]
    figure = ProofFigure(name="recompiles", before=3.0, after=0.0, unit="")
    points = (ProofPoint(name="finding", passed=True, sentence="it is gone", figures=(figure,)),)
    proof = ProofRecord(kind="edit", change="use <b>", risk="none", runs=2, points=points)
    fix = msgspec.structs.replace(finding.fix, proof=proof)
    changed = msgspec.structs.replace(finding, fix=fix)
    text = page(msgspec.structs.replace(found, findings=(changed,)))
    assert "use &lt;b&gt;" in text
    assert "✓ finding: it is gone; recompiles 3 → 0" in text
    assert "Tried, but not valid for this run" in text  # code and torch of the proof are missing


def test_a_page_of_a_comparison() -> None:
    """The same house: it parses, and fetches nothing."""
    before, after = stored("findings"), stored("many")
    text = render_overview(show_comparison(compare(before, after), RenderOptions()), load_assets())
    assert len(Parsed(text).raw["script"]) == 2
    assert "recompiles" in text


def test_the_first_screen_has_verdict_seconds_and_findings() -> None:
    """In this order, above the steps; each row of the table leads to its card, each card to the
    editor and to what tlparse has of the compile."""
    goodput = GoodputSection(wall_s=10.0, goodput_s=6.0, badput_s={"compile": 4.0}, fraction=0.6)
    text = page(msgspec.structs.replace(stored("findings"), goodput=goodput))
    order = ('class="verdict', 'class="shares"', "<caption>Findings, ", 'id="steps"')
    places = [text.index(part) for part in (*order, '<article class="card', "About this run</h2>")]
    assert places == sorted(places)
    assert "steps 6.0 s (60 %)" in text
    assert 'x="60.0" width="40.0"' in text
    assert '<a href="#finding-1">1</a>' in text
    assert '<a href="vscode://file/a%3Cb%22.py:3">open in the editor</a>' in text
    assert '<a href="tlparse/index.html#[0/1]">graph and guards of the compile</a>' in text


def test_the_page_of_a_session() -> None:
    """A row for each test, the worst first, with a link to its own page."""
    names = ("findings", "clean", "breaks")
    receipts = {name: stored(name) for name in names}
    tests = [SessionTest(f"test_<{n}>", r, n == "breaks", f"{n}.html") for n, r in receipts.items()]
    session = build_session_page([*tests, SessionTest("quiet", stored("clean"), False, "")], PLAIN)
    assert (session.kind, session.sentence) == ("bad", "4 watched tests, 1 failed, 2 with findings")
    (table,) = session.blocks
    assert isinstance(table, Table)
    assert [row[:2] for row in table.rows[:2]] == [
        ("test_<breaks>", "failed"),
        ("test_<findings>", "passed"),
    ]
    blind = build_session_page([SessionTest("b", stored("blind"), False, "")], PLAIN)
    assert blind.kind == "blind"
    assert "blind" in render_overview(blind, load_assets()).partition("<tbody>")[2]
    text = render_overview(session, load_assets())
    found = Parsed(text)
    assert len(found.ids) == len(set(found.ids))
    assert '<a href="breaks.html">test_&lt;breaks&gt;</a>' in text
    assert '<th scope="row">quiet</th>' in text


def test_numbers_become_bars_and_lines() -> None:
    """Relative to the largest; what is not known has no shade."""
    rows = [("x", "1"), ("y", "3")]
    assert Table(("a", "b"), rows, bars=[1.0, 4.0]).shares == [0.25, 1.0]
    assert LineChart("t", "c", [1.0, 100.0], 1.0, 100.0).points == "0.0,39.0 240.0,1.0"


def show(*words: str) -> int:
    """The exit code of `compilediag show`."""
    return cli.main(["show", *words])


def test_the_command_writes_a_file_and_replaces_only_its_own(tmp_path: Path, capsys) -> None:
    """What somebody else wrote stays as it is."""
    file = tmp_path / "report.html"
    given = str(VIEWS / "findings.json")
    assert show("--html", str(file), given) == 0
    assert "one file that needs no network" in capsys.readouterr().out
    assert show("--html", str(file), given) == 0
    file.write_text("<p>mine</p>")
    assert show("--html", str(file), given) == 2
    assert file.read_text() == "<p>mine</p>"
    assert "was not written by compilediag" in capsys.readouterr().err
    assert show("--html", str(tmp_path / "none" / "report.html"), given) == 2
    assert "there is no folder" in capsys.readouterr().err
    assert show("--html", str(tmp_path), given) == 2
    assert "is not a plain file" in capsys.readouterr().err
    assert show("--open", given) == 2
    assert "--open belongs to --html FILE" in capsys.readouterr().err


def test_a_run_refuses_a_page_that_cannot_be_written_before_it_starts(tmp_path, capsys) -> None:
    """What cannot be written costs no run."""
    program = tmp_path / "program.py"
    program.write_text("open('ran', 'w')\n")
    page = str(tmp_path / "none" / "report.html")
    assert cli.main(["run", "--html", page, str(program)]) == 2
    assert "there is no folder" in capsys.readouterr().err


def test_the_script_ends_no_element() -> None:
    """What stands between its tags is taken as it is."""
    made = load_assets()
    assert not re.search(r"</(script|style)", made.script + made.style, re.IGNORECASE)
    assert "<!--" not in made.script
