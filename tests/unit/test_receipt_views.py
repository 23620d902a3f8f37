"""Frames, timeline, finding, Markdown and comparison: their texts, and that they are safe."""

from __future__ import annotations

import json
import re
import unicodedata
from pathlib import Path

import msgspec
import pytest
from msgspec import structs
from screens import comparison_screen, screen

from compilediag.compare.diff import compare
from compilediag.receipt.schema.compiles import (
    FindingRecord,
    ProofFigure,
    ProofPoint,
    ProofRecord,
    RefusedChange,
)
from compilediag.receipt.schema.receipt import Receipt
from compilediag.views.compiles import frames, timeline
from compilediag.views.finding import render_finding
from compilediag.views.headline import headline
from compilediag.views.lookups import causes, events
from compilediag.views.markdown import code, prose
from compilediag.views.style import RenderOptions
from compilediag.views.summary import render_markdown
from compilediag.views.text import display_width
from compilediag.views.verdict import render

DATA = Path(__file__).parents[1] / "data" / "views"
OPTIONS = RenderOptions(width=100)
CASES = ("findings", "clean", "blind", "disagree", "killed", "many", "hostile", "breaks")


def receipt(name: str) -> Receipt:
    return msgspec.convert(json.loads((DATA / f"{name}.json").read_text(encoding="utf-8")), Receipt)


def every_view(name: str, options: RenderOptions) -> dict[str, str]:
    made = receipt(name)
    views = {
        "frames": screen(frames, made, options),
        "timeline": screen(timeline, made, options),
        "comparison": comparison_screen(compare(receipt("findings"), made), options),
    }
    for number, item in enumerate(made.findings, 1):
        views[f"finding {number}"] = render_finding(number, item, made, options)
    return views


@pytest.mark.parametrize("name", ["findings", "many", "breaks"])
def test_golden(name: str) -> None:
    """The views of a receipt are exactly those that were read and approved."""
    text = "".join(f"--- {key}\n{text}" for key, text in every_view(name, OPTIONS).items())
    text += f"--- markdown\n{render_markdown(receipt(name))}"
    assert text == (DATA / f"{name}.views.txt").read_text(encoding="utf-8")


def test_a_comparison_reports_that_only_the_code_differs() -> None:
    """Equal counts of another commit: the first line does not claim that nothing changed."""
    before, raw = receipt("findings"), json.loads((DATA / "findings.json").read_text("utf-8"))
    raw["header"]["provenance"]["git_commit"] = "another"
    text = comparison_screen(compare(before, msgspec.convert(raw, Receipt)), OPTIONS)
    assert text.startswith("the same counts; only code, environment or tracked lanes differ")
    assert "code (1)" in text
    assert comparison_screen(compare(before, before), OPTIONS).startswith(
        "the same counts; nothing changed"
    )


def test_ids_of_findings_replace_the_join_by_family_and_variable() -> None:
    """A cause belongs to the finding that it names, also where family or variable differ."""
    raw = json.loads((DATA / "findings.json").read_text("utf-8"))
    for event, ids in zip(raw["compile"]["events"][1:3], (["F1"], ["F2", "F3"]), strict=True):
        for cause, finding in zip(event["causes"], ids, strict=True):
            cause["finding"] = finding
    made = msgspec.convert(raw, Receipt)
    first, _, third = made.findings[:3]
    assert [cause.variable for cause in causes(first, made)] == ["pos.pe"]
    assert [cause.variable for cause in causes(third, made)] == ["pos.pe"]
    assert [event.compile_id for event in events(third, made)] == ["0/2"]


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize(
    "options", [OPTIONS, RenderOptions(60), RenderOptions(80, ascii_only=True)]
)
def test_every_view_is_safe_and_fits(name: str, options: RenderOptions) -> None:
    """No view of any receipt lets the target act on the terminal or overflows it."""
    for key, text in every_view(name, options).items():
        acting = {char for char in text if unicodedata.category(char) in ("Cc", "Cf", "Zl", "Zp")}
        assert acting <= {"\n"}, key
        assert all(display_width(line) <= options.width for line in text.splitlines()), key
        assert text.isascii() or not options.ascii_only, key


def test_facts_of_a_rule_stand_in_their_own_column() -> None:
    """However long their names are, and without meaningless digits of a float."""
    made = receipt("findings")
    item = made.findings[0]
    item = msgspec.structs.replace(item, evidence={"store seconds in a step": 1 / 3})
    text = render_finding(1, item, made, OPTIONS)
    assert re.search(r"^  store seconds in a step  0\.333$", text, re.MULTILINE)
    assert re.search(r"^  where {20}", text, re.MULTILINE)


def test_finding_says_what_is_not_known() -> None:
    """Where the place or the step was not seen, the view states that and guesses nothing."""
    made = receipt("clean")
    item = receipt("findings").findings[0]
    item = msgspec.structs.replace(item, location=None, steps=(), cost_s=None, ownership=None)
    text = render_finding(1, item, made, OPTIONS)
    assert re.search(r"where +could not be determined", text)
    assert re.search(r"when +the step was not seen", text)
    assert re.search(r"cost +not measured", text)
    assert re.search(r"owner +could not be determined", text)


def test_frames_of_an_empty_receipt_are_explained() -> None:
    """No frame at all is a sentence, not an empty table."""
    assert "torch.compile was not reached" in screen(frames, receipt("blind"), OPTIONS)
    assert "torch.compile was not reached" in screen(timeline, receipt("blind"), OPTIONS)


def test_recompiles_of_a_warm_up_are_not_the_headline() -> None:
    """Those that a `FixedShape` expected are information; one that it did not is blamed."""
    made = receipt("findings")
    first = made.findings[0]
    ids = [f"0/{number}" for number in range(1, made.compile.recompiles + 1)]
    planned = msgspec.structs.replace(
        first, rule="CD105", severity="info", evidence={"compile_ids": ids}
    )
    also = msgspec.structs.replace(planned, evidence={"compile_ids": ids[1:]})
    padded = msgspec.structs.replace(first, rule="CD407", severity="warning", evidence={})
    shown = headline(msgspec.structs.replace(made, findings=(planned, also, padded)))
    assert (shown.kind, shown.sentence) == (
        "warn",
        "1 finding in 12 steps; 3 recompiles, all in warm-ups",
    )
    late = msgspec.structs.replace(padded, rule="CD101", evidence={"compile_ids": ["0/1"]})
    for findings in ((planned, late), (also, padded)):
        shown = headline(msgspec.structs.replace(made, findings=findings))
        assert (shown.kind, shown.sentence.split(" cost")[0]) == ("bad", "3 recompiles in 12 steps")


EVIL = "export X=1 | `<script>` @user http://evil ]( \x1b[31m\u202e\n::error::x"


def with_fix(name: str, change: str, *, proved: bool) -> Receipt:
    """A receipt whose findings have a proved change, or one that was refused."""
    point = ProofPoint(
        name="finding",
        passed=True,
        sentence="recompiles 5 → 0",
        figures=(ProofFigure(name="recompiles", before=5.0, after=0.0),),
    )
    proof = ProofRecord(kind="environment", change=change, risk=change, runs=3, points=(point,))
    refused = RefusedChange(change=change, reason="5 of 5 recompiles remain")
    made = receipt(name)

    def changed(item: FindingRecord) -> FindingRecord:
        more = {"proof": proof} if proved else {"refused": (refused,)}
        return structs.replace(item, fix=structs.replace(item.fix, **more))

    return structs.replace(made, findings=tuple(map(changed, made.findings)))


def test_a_proved_change_is_shown_with_what_it_did() -> None:
    """On the screen as a line to copy, in Markdown as code, in `explain` with each point."""
    line = "export X=" + "x" * 500
    made = with_fix("findings", line, proved=True)
    assert f"     proved: {line}\n             recompiles 5 → 0 · 3 runs\n" in render(made)
    assert f"; proved: `{line}` (recompiles 5 → 0)" in render_markdown(made)
    text = render_finding(1, made.findings[0], made, OPTIONS)
    assert re.search(r"^  proved +export", text, re.MULTILINE)
    assert re.search(r"^  finding +recompiles 5 → 0$", text, re.MULTILINE)
    assert "compilediag fix tries changes" not in text


def test_a_refused_change_is_shown_with_the_reason() -> None:
    made = with_fix("findings", "export X=1", proved=False)
    text = render_finding(1, made.findings[0], made, OPTIONS)
    assert re.search(r"^  verified +no: no change that was tried holds$", text, re.MULTILINE)
    assert re.search(r"^  refused +export X=1 \(5 of 5 recompiles remain\)$", text, re.MULTILINE)
    assert "proved" not in render_markdown(made) + render(made)


def test_without_any_it_says_what_tries_some() -> None:
    made = receipt("findings")
    assert "no: compilediag fix tries changes" in render_finding(1, made.findings[0], made, OPTIONS)
    assert "proved" not in render_markdown(made) + render(made)


@pytest.mark.parametrize("proved", [True, False])
def test_a_hostile_change_is_inert(proved: bool) -> None:
    made = with_fix("findings", EVIL, proved=proved)
    texts = [render(made), render_markdown(made)]
    texts += [render_finding(1, made.findings[0], made, OPTIONS)]
    for text in texts:
        acting = {char for char in text if unicodedata.category(char) in ("Cc", "Cf", "Zl", "Zp")}
        assert acting <= {"\n"}
        assert not any(line.lstrip().startswith("::") for line in text.splitlines())
    outside = re.sub(r"(`+)(?:(?!\1).)+\1", "", texts[1])
    assert not any(each in outside for each in ("<script>", "@user", "http://"))
    rows = [line for line in texts[1].splitlines() if line.startswith("|")]
    assert {len(re.findall(r"(?<!\\)\|", row)) for row in rows} == {8}


def test_headline_without_a_verdict_does_not_claim_one() -> None:
    """A receipt without a verdict (made from an old log) is neither clean nor bad."""
    shown = headline(msgspec.structs.replace(receipt("clean"), verdict=None))
    assert shown.kind == "blind"
    assert shown.sentence.startswith("no verdict")


def test_markdown_is_inert() -> None:
    """Nothing of the target becomes markup, a mention, a link or another table cell."""
    text = render_markdown(receipt("hostile"))
    outside = re.sub(r"(`+)(?:(?!\1).)+\1", "", text)
    assert "<script>" not in outside
    assert "@user" not in outside
    assert "http://" not in outside
    rows = [line for line in text.splitlines() if line.startswith("|")]
    assert {len(re.findall(r"(?<!\\)\|", row)) for row in rows} == {8}


@pytest.mark.parametrize(
    ("raw", "shown"),
    [("a", "`a`"), ("a`b", "`` a`b ``"), ("``", "``` `` ```"), ("a|b", "`a\\|b`"), ("", "` `")],
)
def test_code_span_cannot_be_left(raw: str, shown: str) -> None:
    """The fence is longer than any run of backticks inside."""
    assert code(raw) == shown


def test_prose_is_escaped() -> None:
    """Signs of Markdown are escaped, mentions and links broken."""
    assert prose("*a* [b](c) <i> @x") == "\\*a\\* \\[b\\](c) \\<i\\> @<!-- -->x"


def test_comparison_tells_both_sides() -> None:
    """Changed counts, gone causes and changed frames are shown with before and after."""
    text = comparison_screen(compare(receipt("findings"), receipt("clean")), OPTIONS)
    assert text.startswith("findings → clean · frames 1 → 5")
    assert re.search(r"recompiles +3 +0 +-3", text)
    assert "causes that are gone (3)" in text
    assert "CD103 pos.pe" in text


if __name__ == "__main__":
    for case in ("findings", "many", "breaks"):
        parts = [f"--- {key}\n{text}" for key, text in every_view(case, OPTIONS).items()]
        parts.append(f"--- markdown\n{render_markdown(receipt(case))}")
        (DATA / f"{case}.views.txt").write_text("".join(parts), encoding="utf-8")
