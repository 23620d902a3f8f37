"""The program's own line comes first wherever a place is shown, and decides whose a recompile
is."""

import json
import re
from collections.abc import Callable
from dataclasses import replace

import pytest
from gate_receipts import branch, first, receipt
from screens import comparison_screen, screen
from timelines import FILE, PACKAGE_FILE, attempt, false_guard, recompile

from compilediag.compare.diff import compare
from compilediag.compare.gate.judge import judge, record_baseline
from compilediag.compare.gate.judgement import Judgement
from compilediag.compare.gate.limits import parse_limits
from compilediag.receipt.schema.receipt import Receipt
from compilediag.views.compiles import show_timeline
from compilediag.views.finding import render_finding
from compilediag.views.gate import FORMATS
from compilediag.views.gate.messages import find_location
from compilediag.views.style import RenderOptions
from compilediag.views.summary import render_markdown
from compilediag.views.verdict import render
from compilediag_harness.wire import Location, UserCall

CALL = UserCall(FILE, 36, "main", "model(x, data.rows)", (("n", "data.rows"),))
OTHER = UserCall(FILE, 50, "evaluate", "model(x, 3)", (("n", "3"),))
LIBRARY = Location(PACKAGE_FILE, 47, "scatter")
OWN = Location(FILE, 10, "forward")
OPTIONS = RenderOptions()


def run(
    *calls: UserCall | None, where: Location = LIBRARY, thread: str = "", broken: bool = False
) -> Receipt:
    """A recompile for each call, because of a number that is passed to the function."""
    made = [replace(attempt("0/0", where=where), entered_at=calls[0], entered_from=thread)]
    for number, call in enumerate(calls, 1):
        entered = {"entered_at": call, "entered_from": thread}
        guard = false_guard("L['n']", "L['n'] == 2", user=where)
        cause = recompile(f"0/{number}", step=number, where=where, guards=[guard])
        item = attempt(f"0/{number}", kind="recompile", step=number, where=where, cause=cause)
        again = replace(cause, **entered)
        made.append(replace(item, recompile=again, **entered))
    site = replace(branch(file=where.file), entered_at=calls[0])
    return receipt(*made, breaks=[site] if broken else [])


def judged(found: Receipt, **more: bool) -> Judgement:
    return judge(
        found, baseline=record_baseline(receipt(first()), None).baseline, baseline_name="x", **more
    )


SCREENS: dict[str, Callable[[Receipt], str]] = {
    "verdict": render,
    "explain": lambda found: render_finding(1, found.findings[0], found, OPTIONS),
    "timeline": lambda found: screen(show_timeline, found, OPTIONS),
    "markdown": render_markdown,
    "diff": lambda found: comparison_screen(compare(receipt(), found), OPTIONS),
    **{
        f"gate-{name}": lambda found, name=name: FORMATS[name]([judged(found)], OPTIONS)
        for name in ("github", "gitlab", "junit", "sarif", "terminal", "md")
    },
}


@pytest.mark.parametrize("view", SCREENS)
def test_the_own_line_comes_first(view: str) -> None:
    """Of a recompile in a library the call in the program's file is shown, before its line."""
    shown = SCREENS[view](run(CALL))
    own, library = shown.find("app.py"), shown.find("layers.py")
    assert 0 <= own
    assert library < 0 or own < library


def test_explain_lists_the_call_of_each_compile() -> None:
    """With all that the first one passes, where every fact is wanted."""
    found = run(CALL, OTHER)
    text = render_finding(1, found.findings[0], found, OPTIONS, whole=True)
    rows = [line for line in text.splitlines() if "scatter, site-packages/einops" in line]
    assert [row.split()[5] for row in rows] == ["app.py:36:", "app.py:50:"]
    assert re.search(r"entered at.text +model\(x, data.rows\)\n", text)
    assert re.search(r"entered at.arguments +parameter n, expression data.rows\n", text)


def test_a_line_of_ones_own() -> None:
    """It comes first, and the call not at all."""
    screen = render(run(CALL, where=OWN))
    assert "app.py:10 in forward\n" in screen
    assert "app.py:36" not in screen


@pytest.mark.parametrize(
    ("thread", "words"),
    [
        ("thread pool_0 (thread.py:83 in _worker)", "called from thread pool_0 (thread.py:83"),
        ("", "your line that led there was not recorded"),
    ],
)
def test_no_call_of_ones_own(thread: str, words: str) -> None:
    """A library's line never stands alone: the thread, or that it is not known."""
    found = run(None, thread=thread)
    for view in ("verdict", "explain", "markdown"):
        assert words in " ".join(SCREENS[view](found).replace("\\", "").split()), view


def test_annotations_are_on_the_own_file() -> None:
    """What marks lines of a repository marks the call; the library's line is in the message."""
    judgement = judged(run(CALL, broken=True))
    assert {item.kind for item in judgement.failures} >= {"cause", "break"}
    for item in judgement.failures:
        if item.kind in ("cause", "break"):
            assert find_location(item, OPTIONS) == ("app.py", 36)
    log = json.loads(FORMATS["sarif"]([judgement], OPTIONS))
    places = [result["locations"][0] for result in log["runs"][0]["results"]]
    assert places[0]["physicalLocation"]["artifactLocation"]["uri"] == "app.py"
    assert places[0]["physicalLocation"]["region"] == {"startLine": 36}
    assert places[0]["logicalLocations"][0]["fullyQualifiedName"] == "main"
    assert "layers.py:47" in log["runs"][0]["results"][0]["message"]["text"]
    annotations = FORMATS["github"]([judgement], OPTIONS)
    assert "::error file=app.py,line=36," in annotations
    assert "layers.py:47" in annotations
    read = json.loads(FORMATS["json"]([judgement], OPTIONS))
    item = read["judgements"][0]["failures"][0]
    assert (item["file"], item["call"]["line"]) == (PACKAGE_FILE, 36)


def test_what_a_cause_is_does_not_depend_on_the_call() -> None:
    """The same item and the same baseline, from wherever it is called."""
    here, there = judged(run(CALL)), judged(run(OTHER))
    assert [i.fingerprint for i in here.failures] == [i.fingerprint for i in there.failures]
    baseline = record_baseline(run(CALL), None, reason="known").baseline
    assert judge(run(OTHER), baseline=baseline, baseline_name="x").passed


def test_own_code_only_counts_what_an_own_line_entered() -> None:
    """A recompile in a library that a line of the program asked for; no break there, and no
    recompile of a thread without such a line."""
    found = run(CALL, broken=True)
    own = judged(found, own_code_only=True)
    assert [item.kind for item in own.failures] == ["cause"]
    counts = {item.name: item.after for item in own.counts}
    assert (counts["recompiles"], counts["graph_breaks"]) == (1, 0)
    limits = parse_limits("recompiles>0,findings>0")
    assert not judge(found, limits=limits, own_code_only=True).passed
    pool = run(None, thread="thread pool_0 (thread.py:83 in _worker)")
    assert judge(pool, limits=limits, own_code_only=True).passed
