"""The formats of `compilediag gate`: what they say, their limits, and that they are safe.

`sarif-2.1.0-rtm.5.json` is the schema of the OASIS standard as SchemaStore publishes it, unchanged;
it was taken from the npm package `@microsoft/jest-sarif` (MIT). Run this file to make the golden
files again.
"""

import functools
import json
import re
import unicodedata
import xml.etree.ElementTree as ET
from collections.abc import Callable, Iterator
from pathlib import Path
from random import Random
from typing import Any, TypeVar

import jsonschema
import pytest
from junitparser import JUnitXml
from markdown_it import MarkdownIt
from markdown_it.token import Token
from msgspec import structs
from screens import acting

from compilediag.compare.changes import CountChange
from compilediag.compare.gate.judgement import Issue, Judgement, Kind
from compilediag.receipt.schema.compiles import PassedArgument, UserCallRecord
from compilediag.views.gate import FORMATS, forges
from compilediag.views.gate.messages import RepositoryLine, find_location
from compilediag.views.style import RenderOptions
from compilediag.views.text import measure_width

DATA = Path(__file__).parents[1] / "data"
GOLDEN = DATA / "gate"
SARIF = jsonschema.Draft4Validator(json.loads((DATA / "sarif-2.1.0-rtm.5.json").read_bytes()))
OPTIONS = RenderOptions(width=100)
ROOTED = RenderOptions(root="/home/runner/work/nano/nano")

CAUSE = Issue(
    kind="cause",
    rule="CD103",
    message="pos.pe ([1, 16] → [8, 16]) made torch compile forward again: 2 recompiles",
    before=0,
    after=2,
    file="model.py",
    line=7,
    function="forward",
    variable="pos.pe",
    guard="tensor 'pos.pe' size mismatch at index 0. expected 1, actual 8",
    fix="create the buffer at its full size in __init__",
    cost_s=0.31,
    finding="F1",
    proved="export TORCH_COMPILE_DYNAMIC_SOURCES=\"L['n']\" (recompiles 2 → 0)",
)
BREAK = Issue(
    kind="break",
    rule="CD201",
    message="an if depends on tensor data",
    before=1,
    after=2,
    file="/home/runner/work/nano/nano/src/loss.py",
    line=22,
    function="step",
    fix="use torch.where",
    finding="F2",
)
COUNT = Issue(
    kind="count", rule="recompiles", message="recompiles went from 1 to 3", before=1, after=3
)
BETTER = Issue(
    kind="cause", rule="CD101", message="flag is gone", before=2, after=0, variable="flag"
)
KNOWN = Issue(
    kind="break",
    rule="CD203",
    message="a call of print",
    before=1,
    after=1,
    file="train.py",
    line=3,
    function="main",
    reason="intended: it prints the loss",
)
LIMIT = Issue(
    kind="limit",
    rule="recompiles",
    message="recompiles: 3, and the limit is recompiles>2",
    before=2,
    after=3,
)
UNPROVED = Issue(
    kind="unproved",
    rule="CD151",
    message="6 of 8 variants used: no change is proved; run `compilediag fix 3`",
    file="model.py",
    line=7,
    function="forward",
    finding="F3",
)
BLIND = Issue(
    kind="not_judged", rule="not_judged", message="the receipt is blind: torch's log was lost"
)

FAILED = Judgement(
    configuration="nano/train",
    receipt_id="01JB0000000000000000000000",
    verdict="findings",
    baseline="compilediag.lock.json",
    limits=("graph_breaks>2",),
    counts=(CountChange("recompiles", 1, 3), CountChange("graph_breaks", 2, 2)),
    failures=(CAUSE, BREAK, COUNT),
    improvements=(BETTER,),
    known=(KNOWN,),
    notices=("torch is 2.13.0; the baseline was made with 2.12.1",),
)
Changed = TypeVar("Changed", Issue, Judgement)


def replace(item: Changed, **changes: Any) -> Changed:
    """A copy with other fields."""
    return structs.replace(item, **changes)


PASSED = replace(
    FAILED,
    configuration="nano/eval",
    verdict="clean",
    failures=(),
    improvements=(),
    notices=(),
    limits=(),
    counts=(),
)
UNJUDGED = replace(
    PASSED, configuration="nano/bench", verdict="blind", counts=(), known=(), failures=(BLIND,)
)
ALL = (PASSED, FAILED, UNJUDGED)


def render(name: str, *judgements: Judgement, options: RenderOptions = OPTIONS) -> str:
    return FORMATS[name](judgements, options)


def lane_with(count: int, chars: int) -> Judgement:
    """A lane with `count` different failures whose texts have `chars` characters."""
    failures = tuple(
        replace(
            CAUSE,
            rule=f"CD1{index % 20:02}",
            message=f"{index} " + "é" * chars,
            file=f"m{index}.py",
            line=index + 1,
            variable=f"v{index}" * (chars // 5),
            finding=f"F{index}",
            **dict.fromkeys(("function", "guard", "fix"), "x" * chars),
            proved="é" * chars,
        )
        for index in range(count)
    )
    return replace(FAILED, failures=failures)


# --- goldens -------------------------------------------------------------------------------------


def golden_text(name: str) -> str:
    """One failed lane alone, then three lanes."""
    return f"{render(name, FAILED, options=ROOTED)}---\n{render(name, *ALL)}"


@pytest.mark.parametrize("name", FORMATS)
def test_golden(name: str) -> None:
    """The formats are exactly those that were read and approved."""
    assert golden_text(name) == (GOLDEN / f"{name}.txt").read_text(encoding="utf-8")


# --- terminal ------------------------------------------------------------------------------------


def test_terminal_names_every_failure_and_counts_what_it_leaves_out() -> None:
    """Beyond the first five a failure has a line; beyond the last line it is counted."""
    text = render("terminal", lane_with(60, 10))
    assert [number for number in range(60) if f"m{number}.py:{number + 1}" not in text] == [
        *range(55, 60)
    ]
    assert "+5 more" in text


@pytest.mark.parametrize(
    ("judgement", "first"),
    [
        (replace(PASSED, improvements=(BETTER,)), "✓ gate passed: 1 improvement, 1 known   conf"),
        (
            replace(PASSED, improvements=(BETTER,), strict=True),
            "✗ gate failed: 1 improvement the baseline does not hold yet   configuration",
        ),
        (
            replace(FAILED, failures=(replace(CAUSE, before=None), LIMIT), baseline=None),
            "✗ gate failed: 1 cause, 1 limit exceeded   configuration nano/train against gr",
        ),
        (
            replace(FAILED, failures=(BREAK, COUNT), limits=()),
            "✗ gate failed: 1 graph break at more sites, 1 count over the baseline\n  config",
        ),
    ],
)
def test_terminal_headlines(judgement: Judgement, first: str) -> None:
    """Every outcome has a sentence of its own."""
    assert render("terminal", judgement, options=RenderOptions(width=120)).startswith(first)


# --- github --------------------------------------------------------------------------------------

COMMAND = re.compile(r"::(error|notice) ([^:]*)::(.*)\Z", re.DOTALL)


def commands(text: str) -> list[tuple[str, dict[str, str], str]]:
    """Workflow commands as the runner reads them; every line must be one."""
    read: list[tuple[str, dict[str, str], str]] = []
    for line in text.removesuffix("\n").split("\n"):
        match = COMMAND.match(line)
        assert match is not None, line
        pairs = (item.split("=", 1) for item in match[2].split(","))
        read.append(
            (match[1], {key: unescaped(value) for key, value in pairs}, unescaped(match[3]))
        )
    return read


def unescaped(text: str) -> str:
    for escape, char in (("%0D", "\r"), ("%0A", "\n"), ("%3A", ":"), ("%2C", ","), ("%25", "%")):
        text = text.replace(escape, char)
    return text


def test_github_shows_nine_and_counts_the_rest() -> None:
    """Every failed lane has an annotation before one lane has two; the rest is one notice."""
    read = commands(render("github", lane_with(10_000, 10), UNJUDGED, options=ROOTED))
    errors = [given for kind, given, _ in read if kind == "error"]
    assert len(errors) == 9
    assert errors[1]["title"] == "not judged"
    notices = [message for kind, _, message in read if kind == "notice"]
    assert notices[0].startswith("9,992 more failures")
    assert len(notices) <= 10


def test_github_shows_at_most_ten_notices() -> None:
    """Notices have a limit too."""
    read = commands(render("github", replace(PASSED, notices=("n",) * 30)))
    assert [kind for kind, _, _ in read] == ["notice"] * 10
    assert "22 more notices" in read[-1][2]


# --- places --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("file", "path"),
    [
        ("model.py", "model.py"),
        ("./a//b.py", "a/b.py"),
        ("/home/runner/work/nano/nano/a.py", "a.py"),
        ("/usr/lib/python3/site.py", None),
        ("../other/a.py", None),
        ("<string>", None),
        ("a\nb.py", None),
        ("a\u202eb.py", None),
        ("", None),
        (".", None),
        ("/home/runner/work/nano/nano/../../x", None),
        ("é.py", "é.py"),
    ],
)
def test_only_files_of_the_repository_are_marked(file: str, path: str | None) -> None:
    """A place is a relative path below the root, or there is none."""
    found = find_location(replace(CAUSE, file=file), ROOTED)
    assert found == (None if path is None else RepositoryLine(path, 7))


def test_files_of_a_folder_are_marked_from_the_root() -> None:
    """A gate that runs below the root of its repository marks the same lines."""
    options = structs.replace(ROOTED, folder="examples/nano")
    assert find_location(replace(CAUSE, file="a.py"), options) == RepositoryLine(
        "examples/nano/a.py", 7
    )
    rooted = "/home/runner/work/nano/nano/src/a.py"
    assert find_location(replace(CAUSE, file=rooted), options) == RepositoryLine("src/a.py", 7)
    assert find_location(replace(CAUSE, file="<string>"), options) is None


# --- gitlab --------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["gitlab", "sarif"])
def test_fingerprints_survive_moved_lines_and_distinguish_twins(name: str) -> None:
    """The same cause on another line is the same; two alike, or in two lanes, are not."""
    before = fingerprints(name, FAILED)
    moved = fingerprints(name, replace(FAILED, failures=(replace(CAUSE, line=99), BREAK, COUNT)))
    assert before == moved
    other = replace(FAILED, configuration="nano/other")
    twins = fingerprints(name, replace(FAILED, failures=(CAUSE, CAUSE)), other)
    assert len(set(twins)) == len(twins) == 5
    assert before[0] == twins[0]


def fingerprints(name: str, *judgements: Judgement) -> list[str]:
    read = json.loads(render(name, *judgements))
    if name == "gitlab":
        return [item["fingerprint"] for item in read]
    results = read["runs"][0]["results"]
    return [item["partialFingerprints"]["primaryLocationLineHash"] for item in results]


# --- sarif ---------------------------------------------------------------------------------------


def test_causes_of_one_finding_are_one_result_of_sarif() -> None:
    """The first, with the places of the others; its fingerprint stays as it was alone."""
    part = replace(CAUSE, variable="two.active", line=70)
    together = replace(FAILED, failures=(CAUSE, part, BREAK))
    read = json.loads(render("sarif", together))
    SARIF.validate(read)
    (cause, broken) = read["runs"][0]["results"]
    assert "relatedLocations" not in broken
    (other,) = cause["relatedLocations"]
    assert other["physicalLocation"]["region"]["startLine"] == 70
    assert "two.active" in other["message"]["text"]
    assert "with: " in cause["message"]["text"]
    alone = fingerprints("sarif", replace(FAILED, failures=(CAUSE, BREAK)))
    assert fingerprints("sarif", together) == alone
    apart = replace(together, failures=(CAUSE, replace(part, finding="F9"), BREAK))
    assert len(json.loads(render("sarif", apart))["runs"][0]["results"]) == 3


def test_the_schema_of_sarif_can_fail() -> None:
    """A wrong level or an unknown key is refused."""
    read = json.loads(render("sarif", FAILED))
    read["runs"][0]["results"][0]["level"] = "bad"
    with pytest.raises(jsonschema.ValidationError):
        SARIF.validate(read)


@pytest.mark.parametrize(("name", "element"), [("github", "::error"), ("junit", "<failure")])
def test_a_strict_gate_says_what_is_better(name: str, element: str) -> None:
    """A gate that fails only for being better still has an error to show."""
    text = render(name, replace(PASSED, improvements=(BETTER,), strict=True))
    shown = text.partition(element)[2]
    assert "does not hold yet" in shown
    assert "flag is gone" in shown


@pytest.mark.parametrize("name", FORMATS)
def test_a_finding_without_a_proved_change(name: str) -> None:
    """Each format says that it fails, for what, and which command is next."""
    text = render(name, replace(FAILED, failures=(UNPROVED,), require_proved_fix=True))
    assert "6 of 8 variants used: no change is proved; run `compilediag fix 3`" in text
    assert name in ("json", "gitlab") or "no proved change" in text


def tokens(text: str) -> list[Token]:
    """Every token of the page, those inside lines included."""
    parser = MarkdownIt("commonmark", {"html": True}).enable(["table", "strikethrough"])
    return [inner for token in parser.parse(text) for inner in (token, *(token.children or ()))]


# --- nothing, much, hostile ----------------------------------------------------------------------


@pytest.mark.parametrize("name", FORMATS)
def test_nothing_judged_is_no_pass(name: str) -> None:
    """Without a judgement a format reports that; GitLab's has no place for it."""
    text = render(name)
    said = {"json": '"passed": false', "gitlab": "[]", "sarif": '"executionSuccessful":false'}
    assert said.get(name, "nothing was judged, which is no pass") in text


LIMITS = {
    "terminal": 30_000,
    "github": 64 * 1024,
    "gitlab": 11_000_000,
    "sarif": 10_000_000,
    "junit": 30_000_000,
    "md": 1024 * 1024,
}
"""Bytes that each reader takes; JSON is for programs and holds everything."""


CROWD = 3000


@pytest.fixture(scope="module")
def crowd() -> Judgement:
    return lane_with(CROWD, 2048)


@pytest.mark.parametrize("name", LIMITS)
def test_thousands_of_failures_stay_below_the_limit(name: str, crowd: Judgement) -> None:
    """The most important come first, and what is cut is counted where the format has words."""
    text = render(name, crowd, options=ROOTED)
    assert len(text.encode()) < LIMITS[name]
    assert "m0.py" in text
    if name in ("terminal", "github", "md"):
        assert re.search(r"[\d,]+ more", text)


def test_thousands_of_failures_can_be_read_again(crowd: Judgement) -> None:
    """Still valid SARIF and XML, which count what they left out; JSON has them all."""
    read = json.loads(render("sarif", crowd))
    run = read["runs"][0]
    left = CROWD - len(run["results"])
    assert left > 0
    SARIF.validate({**read, "runs": [{**run, "results": run["results"][:50]}]})
    notifications = run["invocations"][0]["toolExecutionNotifications"]
    assert notifications[0]["message"]["text"].startswith(f"{left} more failures")
    failure = ET.fromstring(render("junit", crowd)).find(".//failure")
    assert "more: compilediag gate --format json" in (failure.text or "")
    assert len(json.loads(render("json", crowd))["judgements"][0]["failures"]) == CROWD


def test_no_more_results_than_code_scanning_takes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Small ones too: their number is limited beside their size."""
    assert forges.MAX_RESULTS <= 25_000
    monkeypatch.setattr(forges, "MAX_RESULTS", 10)
    item = Issue(kind="count", rule="r", message="m")
    read = json.loads(render("sarif", replace(FAILED, failures=(item,) * 12)))
    assert len(read["runs"][0]["results"]) <= 10


@pytest.mark.parametrize("name", LIMITS)
def test_many_lanes_of_costly_texts_stay_below_the_limit(name: str) -> None:
    """Limits hold for the texts that escaping makes longest, in every field, over many lanes."""
    text = "😀'&" * 400
    items = tuple(
        Issue(
            *("cause", f"{index}{text}", text, 0, 1, text, 1, text, text, text, text, 1.0, "F1"),
            reason=text,
            proved=text,
        )
        for index in range(20)
    )
    lanes = [
        Judgement(
            configuration=f"{index}{text}",
            **dict.fromkeys(("receipt_id", "verdict", "baseline"), text),
            limits=(text,),
            counts=(CountChange(text, 0, 1),) * 20,
            failures=items if index % 2 else (),
            improvements=items,
            known=items,
            notices=(text,) * 20,
            strict=True,
        )
        for index in range(5 if name == "terminal" else 20)
    ]
    limit = 250_000 if name == "terminal" else LIMITS[name]
    assert len(render(name, *lanes).encode()) < limit


FRAGMENTS = (
    "\n::error ::EVIL",
    "::add-mask::EVIL",
    "##[error]EVIL",
    "%0A::error::EVIL",
    "\r\n",
    "`",
    "``` EVIL",
    "<script>EVIL</script>",
    "[EVIL](http://evil.invalid)",
    "![EVIL](x)",
    "www.evil.invalid",
    "@EVIL #1",
    "|",
    "\\",
    "\x1b[31mEVIL",
    "\x00",
    "\ud800",
    "\u202eEVIL",
    "\ufffe",
    "]]>",
    "&lt;b&gt;EVIL",
    "-->",
    "{0}",
    "a,b=c:d%",
    "/etc/passwd",
    "../../x",
    " ",
)


def one_of_each_category() -> Iterator[str]:
    """A character of each Unicode category, of low and of high planes."""
    for characters in (range(0x3000), range(0x10000, 0x110000, 7)):
        found = {unicodedata.category(chr(code)): chr(code) for code in characters}
        yield from found.values()


TEXTS = (*FRAGMENTS, *one_of_each_category())
KINDS: tuple[Kind, ...] = (
    *("limit", "count", "cause", "break", "fallback", "frame", "unproved", "not_judged"),
)


def hostile(texts: Callable[[], str], index: int) -> Judgement:
    """A judgement with such a text in every field, and items of each kind."""

    def item(kind: Kind) -> Issue:
        numbers = (None, 0, index % 9)
        return Issue(
            kind,
            "CD103" if index % 3 else texts(),
            texts(),
            numbers[index % 3],
            numbers[(index + 1) % 3],
            texts() if index % 5 else None,
            (-1, 0, 1, 10**9, None)[index % 5],
            *(texts() for _ in range(4)),
            (0.0, 1e6, None)[index % 3],
            "F1" if index % 2 else texts(),
            texts(),
            proved=texts() if index % 3 else None,
            call=UserCallRecord(
                file=texts(),
                line=(-1, 0, 1, 10**9)[index % 4],
                function=texts(),
                text=texts(),
                arguments=(PassedArgument(parameter=texts(), expression=texts()),),
            )
            if index % 2
            else None,
        )

    items = [item(KINDS[(index + more) % len(KINDS)]) for more in range(3)]
    return Judgement(
        configuration=texts(),
        receipt_id=texts(),
        verdict=texts(),
        baseline=texts() if index % 2 else None,
        limits=(texts(), texts()),
        counts=(CountChange(texts(), 0, 1),),
        failures=tuple(items[: index % 4]),
        improvements=tuple(items),
        known=tuple(items),
        notices=(texts(), texts()),
        strict=index % 2 == 0,
    )


@functools.cache
def judgements() -> tuple[tuple[Judgement, ...], ...]:
    """Every text alone in every field, then mixtures, two lanes at a time."""
    random = Random(7)
    alone = [hostile(lambda text=text: text, index) for index, text in enumerate(TEXTS)]
    mixed = [
        hostile(lambda: "".join(random.choices(TEXTS, k=random.randint(1, 5))), index)
        for index in range(40)
    ]
    return ((), *((one,) for one in alone), *zip(mixed[::2], mixed[1::2], strict=True))


@pytest.mark.parametrize("name", FORMATS)
def test_no_format_lets_a_character_act(name: str) -> None:
    """Every format is text that can be encoded, without control characters of the target."""
    for found in judgements():
        text = render(name, *found)
        text.encode("utf-8")
        assert acting(text) == set()


def test_a_hostile_terminal_fits_and_starts_no_command() -> None:
    """No line is wider than the terminal, nor a command to GitHub's runner."""
    for found in judgements():
        assert render("terminal", *found, options=RenderOptions(80, ascii_only=True)).isascii()
        text = render("terminal", *found, options=RenderOptions(60))
        for line in text.splitlines():
            assert measure_width(line) <= 60
            assert not line.lstrip().startswith("::")
            assert "##[" not in line


def test_hostile_workflow_commands_stay_whole() -> None:
    """Every line is one command of ours, and a file it names is a path of the repository."""
    for found in judgements():
        read = commands(render("github", *found, options=ROOTED))
        assert sum(kind == "error" for kind, _, _ in read) <= 10
        assert sum(kind == "notice" for kind, _, _ in read) <= 10
        for _, given_, _ in read:
            assert set(given_) <= {"file", "line", "title"}
            path = given_.get("file", "x")
            assert not path.startswith("/")
            assert ".." not in path.split("/")


def test_hostile_markdown_is_inert() -> None:
    """Text of the target is only ever code: no HTML, no link, no other table cell."""
    for found in judgements():
        text = render("md", *found)
        for token in tokens(text):
            assert token.type not in ("html_inline", "html_block", "image", "fence", "code_block")
            assert "EVIL" not in token.content or token.type in ("code_inline", "inline"), token
            assert token.type != "link_open", token
            if token.type == "text":
                assert "evil" not in token.content
        rows = [line for line in text.splitlines() if line.startswith("|")]
        assert {len(re.findall(r"(?<!\\)\|", row)) for row in rows} <= {4, 8}


def test_hostile_documents_are_valid() -> None:
    """XML, JSON and SARIF can be read again, and GitLab's paths stay inside the repository."""
    for found in judgements():
        JUnitXml.fromstring(render("junit", *found).encode())
        log = json.loads(render("sarif", *found, options=ROOTED))
        SARIF.validate(log)
        # `[text](address)` in a message is a link to viewers of SARIF.
        assert all("](" not in each["message"]["text"] for each in log["runs"][0]["results"])
        json.loads(render("json", *found))
        entries = json.loads(render("gitlab", *found))
        assert len({item["fingerprint"] for item in entries}) == len(entries)
        for item in entries:
            assert ".." not in item["location"]["path"].split("/")
            assert not item["location"]["path"].startswith("/")
            assert item["location"]["lines"]["begin"] >= 1


if __name__ == "__main__":
    for made in FORMATS:
        (GOLDEN / f"{made}.txt").write_text(golden_text(made), encoding="utf-8")
