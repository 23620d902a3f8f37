"""Views of receipts: whole screens, their size, and texts that attack what shows them.

Verdict screens are compared with tests/data/views/*.txt in every shape; `make frozen` compares all
other views. After a deliberate change run this file (with tests/support on PYTHONPATH) to write the
screens anew; read the difference before you commit it.
"""

import re
from collections.abc import Callable
from html.parser import HTMLParser

import msgspec
import pytest
from markdown_it import MarkdownIt
from msgspec.structs import replace
from screens import CASES, VIEWS, acting, comparison_screen, screen, stored

from compilediag import cli
from compilediag.compare.diff import compare
from compilediag.receipt.schema.compiles import (
    AcceptedSizes,
    CandidateRecord,
    ExcerptRecord,
    FindingRecord,
    GraphBreak,
    PartRecord,
    Place,
    ProofFigure,
    ProofPoint,
    ProofRecord,
    RefusedChange,
    UserCallRecord,
    ValueInGraph,
    VariedValue,
    Writer,
)
from compilediag.receipt.schema.receipt import Receipt
from compilediag.views import summary
from compilediag.views.compiles import show_frames, show_timeline
from compilediag.views.finding import render_finding
from compilediag.views.findings import MAX_FINDINGS
from compilediag.views.format import format_seconds
from compilediag.views.headline import build_headline
from compilediag.views.lookups import list_causes, list_compiles, list_main_findings
from compilediag.views.markdown import escape_prose, quote_code
from compilediag.views.next_command import choose_command
from compilediag.views.style import PLAIN, RenderOptions
from compilediag.views.summary import render_issue, render_markdown, render_notebook
from compilediag.views.text import measure_width
from compilediag.views.verdict import SCREEN_LINES, render

SHAPES = {
    "wide": RenderOptions(width=120),
    "screen": PLAIN,
    "narrow": RenderOptions(width=60),
    "ascii": RenderOptions(width=80, ascii_only=True),
    "color": RenderOptions(color=True),
    "all": PLAIN,
}
ANSI = re.compile(r"\x1b\[[0-9;]*m")


def screens(name: str) -> str:
    """Every shape of one receipt's verdict, one after the other."""
    made = stored(name)
    return "".join(
        f"--- {shape}\n{render(made, options, complete=shape == 'all')}"
        for shape, options in SHAPES.items()
    )


@pytest.mark.parametrize("name", CASES)
def test_golden(name: str) -> None:
    """Each kind of receipt gives exactly the screens that were read and approved."""
    assert screens(name) == (VIEWS / f"{name}.txt").read_text(encoding="utf-8")


def every_view(name: str, options: RenderOptions) -> dict[str, str]:
    """Every screen of a receipt."""
    made = stored(name)
    views = {
        "verdict": render(made, options, complete=True),
        "frames": screen(show_frames, made, options),
        "timeline": screen(show_timeline, made, options),
        "comparison": comparison_screen(compare(stored("findings"), made), options),
    }
    for number, item in enumerate(made.findings, 1):
        views[f"finding {number}"] = render_finding(number, item, made, options)
    return views


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize(
    "options",
    [*map(RenderOptions, (60, 100, 120)), RenderOptions(80, ascii_only=True)],
    ids=lambda options: str(options.width),
)
def test_every_view_is_safe_and_fits(name: str, options: RenderOptions) -> None:
    """No view of any receipt lets the target act on the terminal or overflows it."""
    for key, text in every_view(name, options).items():
        assert acting(text) == set(), key
        assert all(measure_width(line) <= options.width for line in text.splitlines()), key
        assert text.isascii() or not options.ascii_only, key


@pytest.mark.parametrize("name", CASES)
def test_the_verdict_is_one_screen_and_colour_changes_nothing_else(name: str) -> None:
    """However much was found; every style is ended on its line, and nothing is wider than 40."""
    made = stored(name)
    plain, coloured = render(made), render(made, RenderOptions(color=True))
    assert name == "hostile" or plain.count("\n") <= SCREEN_LINES
    assert ANSI.sub("", coloured) == plain
    for line in coloured.splitlines():
        codes = ANSI.findall(line)
        assert not codes or codes[-1] == "\x1b[0m"
    assert all(measure_width(line) <= 40 for line in render(made, RenderOptions(40)).splitlines())


# --- the verdict -----------------------------------------------------------------------------


def test_unmeasured_cost_is_not_zero() -> None:
    """Null means not measured: it is neither 0 s nor a share of the wall time."""
    made = stored("findings")
    section = replace(made.compile, time_s=replace(made.compile.time_s, recompile=None))
    drawn = render(replace(made, compile=section, goodput=None))
    assert "3 recompiles in 12 steps (their cost was not measured)" in drawn


def at_limit(function: str) -> FindingRecord:
    """A frame that hit the limit in step 8."""
    first = stored("findings").findings[0]
    return replace(
        first,
        rule="CD152",
        title=f"{function} hit the recompile limit (8): eager since step 8",
        location=Place(file="model.py", line=3, function=function),
        steps=(8,),
        evidence={"limit": 8},
    )


def recompiled(made: Receipt, *steps: int, variable: str = "x", rule: str = "CD104") -> Receipt:
    """A receipt whose only frame was compiled again in these steps, each time for one variable."""
    again = next(event for event in made.compile.events if event.causes)
    cause = replace(again.causes[0], variable=variable, rule=rule)
    events = [replace(again, step=step, causes=(cause,)) for step in steps]
    frame = replace(made.compile.frames_detail[0], frame=again.frame)
    section = replace(made.compile, events=tuple(events), frames_detail=(frame,))
    return replace(made, compile=section)


def given_up(made: Receipt) -> Receipt:
    """A receipt whose first frame has graphs, and ran eager without a limit."""
    frame = replace(made.compile.frames_detail[0], ran_eager=True)
    section = replace(made.compile, frames_detail=(frame,), eager_fallbacks=1)
    return replace(made, compile=section)


MADE = stored("findings")


@pytest.mark.parametrize(
    ("made", "sentences"),
    [
        (
            replace(MADE, findings=(*MADE.findings, at_limit("f"), at_limit("g"))),
            [
                "f stopped being compiled at step 8 of 12 (recompile limit 8): since then every ",
                "3 recompiles in 12 steps cost 0.43 s, 23 % of wall time",
            ],
        ),
        (
            replace(MADE, compile=replace(MADE.compile, graph_breaks=3)),
            ["3 graph breaks in calls of what is compiled", "3 recompiles in 12 steps cost 0"],
        ),
        (
            given_up(MADE),
            [
                "forward stopped being compiled: torch gave up a recompile, and every call since ",
                "3 recompiles in 12 steps cost 0",
            ],
        ),
        (
            recompiled(MADE, 6, 8, 10),
            ["at this pace forward reaches the recompile limit (8) at about step 20", "3 recomp"],
        ),
        (recompiled(MADE, 1, 2, 3), ["3 recompiles in 12 steps cost"]),  # it came to an end
        (MADE, ["3 recompiles in 12 steps cost"]),  # each for another cause
    ],
    ids=["limit", "break", "given up", "pace", "ended", "several causes"],
)
def test_what_lasts_comes_before_what_it_cost(made: Receipt, sentences: list[str]) -> None:
    """In the verdict of every format."""
    head = build_headline(made)
    shown = [head.sentence, *head.more]
    assert len(shown) == len(sentences)
    assert all(map(str.startswith, shown, sentences))
    assert head.kind == "bad"


@pytest.mark.parametrize(("largest", "forecasts"), [(4096, 0), (65536, 1)])
def test_a_frame_that_serves_all_larger_sizes_has_no_pace(largest: int, forecasts: int) -> None:
    """Each of its sizes was another until they became dynamic."""
    made = recompiled(MADE, 6, 8, 10, rule="CD105")
    accepted = AcceptedSizes(
        frame=made.compile.frames_detail[0].frame,
        compile_id="0/3",
        dimensions=("x.shape[0]",),
        size=8,
        spans=((2, 4096),),
        largest=largest,
    )
    head = build_headline(replace(made, compile=replace(made.compile, accepted_sizes=(accepted,))))
    assert "at this pace" in build_headline(made).sentence
    assert sum("at this pace" in line for line in (head.sentence, *head.more)) == forecasts


@pytest.mark.parametrize(("layers", "shown"), [(1, True), (3, False)])
def test_what_a_frame_serves_is_said_whole_or_counted(layers: int, shown: bool) -> None:
    """As of a decoder whose cache has long names."""
    keys = (
        f"incremental_state[{n}]['previous_key_and_value_of_it'].shape[0]" for n in range(layers)
    )
    accepted = AcceptedSizes(
        frame=MADE.compile.frames_detail[0].frame,
        compile_id="0/0",
        dimensions=tuple(keys),
        size=8,
        spans=((2, 4096),),
        largest=4096,
    )
    section = replace(MADE.compile, accepted_sizes=(accepted,))
    drawn = render(replace(MADE, compile=section), RenderOptions(80))
    assert ("2 or more, and compiles again for 1" in drawn) == shown
    assert ("serves" in drawn) == shown
    assert ("sizes served: compilediag show --all" in drawn) != shown


def broke(function: str, *compile_ids: str) -> tuple[GraphBreak, FindingRecord]:
    """A place where these compiles broke, with its finding."""
    found = replace(MADE.findings[0], id="F9", rule="CD202", evidence={"compile_ids": compile_ids})
    place = {"file": "model.py", "line": 3, "ownership": "user"}
    about = {"gb_id": None, "category": None, "reason": "x", "count": len(compile_ids)}
    return GraphBreak(**place, **about, function=function, finding="F9"), found


@pytest.mark.parametrize(("whole", "which"), [(True, "every call"), (False, "calls")])
def test_a_break_that_not_every_graph_has_is_not_in_every_call(whole: bool, which: str) -> None:
    """A call that another graph of the frame serves does not break there."""
    ids = [event.compile_id for event in MADE.compile.events]
    site, found = broke("f", *(ids if whole else ids[:1]))
    section = replace(MADE.compile, graph_breaks=1, breaks=(site,))
    head = build_headline(replace(MADE, compile=section, findings=(*MADE.findings, found)))
    assert head.sentence == f"1 graph break in {which} of f (finding 9)"


def test_a_break_of_which_no_compile_is_known_is_not_said_to_be_in_every_call() -> None:
    site, found = broke("f", "9/9")
    section = replace(MADE.compile, graph_breaks=1, breaks=(site,))
    head = build_headline(replace(MADE, compile=section, findings=(*MADE.findings, found)))
    assert head.sentence == "1 graph break in calls of f (finding 9)"
    noted = replace(found, severity="info")  # then the count is not that of all below
    section = replace(section, graph_breaks=3)
    head = build_headline(replace(MADE, compile=section, findings=(*MADE.findings, noted)))
    assert head.sentence == "2 of 3 graph breaks in calls of what is compiled"
    led = UserCallRecord(file="model.py", line=3, function="forward", text="Variable(x)")
    led_to = (replace(site, ownership="torch", entered_at=led),)
    section = replace(section, graph_breaks=1, breaks=led_to)
    head = build_headline(replace(MADE, compile=section, findings=(*MADE.findings, found)))
    assert head.sentence == "1 graph break in calls of forward (finding 9)"


def test_a_limit_behind_a_break_lasts_as_well() -> None:
    """It follows from the break, which comes first, and its calls run eager until that is gone."""
    rest = replace(at_limit("torch_dynamo_resume_in_f_at_3"), follows="F1")
    section = replace(MADE.compile, graph_breaks=1)
    head = build_headline(replace(MADE, compile=section, findings=(*MADE.findings, rest)))
    assert head.sentence.startswith("1 graph break in ")
    assert head.more[0].startswith("f (resumed) stopped being compiled at step 8 of 12")


@pytest.mark.parametrize(
    ("recipe", "said"),
    [
        (None, ": wanted, one graph for each variant"),
        ("mark_dynamic", ": once for each variant; a fix is below"),
    ],
)
def test_what_a_recipe_prevents_is_not_called_wanted(recipe: str | None, said: str) -> None:
    """Each was compiled once and served since; whether the program wants it is not known then."""
    section = replace(MADE.compile, wanted=MADE.compile.recompiles, avoidable=0, undecided=0)
    found = [replace(item, fix=replace(item.fix, recipe=recipe)) for item in MADE.findings]
    head = build_headline(replace(MADE, compile=section, findings=tuple(found)))
    assert head.sentence.endswith(said)


@pytest.mark.parametrize(
    ("behind", "severity", "said"),
    [
        (slice(None), "warning", ", all behind 1 graph break"),
        (slice(1), "warning", ", 1 of them behind 1 graph break"),
        (slice(None), "info", ""),
    ],
)
def test_recompiles_behind_a_break_are_said_first(behind: slice, severity: str, said: str) -> None:
    """Before what is known of each; but not where the user asked for the break."""
    again = [event.compile_id for event in MADE.compile.events if event.kind == "recompile"]
    evidence = {"recompiles_behind": again[behind]}
    found = replace(broke("f", "0/0")[1], severity=severity, evidence=evidence)
    section = replace(MADE.compile, wanted=1, avoidable=0, undecided=len(again) - 1)
    head = build_headline(replace(MADE, compile=section, findings=(*MADE.findings, found)))
    text = next(text for text in (head.sentence, *head.more) if "recompiles in" in text)
    assert text.endswith(f"{said}: 1 wanted, {len(again) - 1} undecided")


def test_settings_that_only_may_help_are_not_said_to_cover_findings() -> None:
    """A candidate is for `fix` to try; "without an edit" is said of recipes."""
    candidates = (CandidateRecord(**LONG, value="1"), CandidateRecord(**LONG, value="2"))
    first, second, *_ = MADE.findings
    found = [
        replace(item, fix=replace(item.fix, candidates=(candidate,)))
        for item, candidate in zip((first, second), candidates, strict=True)
    ]
    assert "without an edit" not in render(replace(MADE, findings=tuple(found)))


def test_a_limit_says_whose_recompiles_hit_it() -> None:
    """Since when it is hit stands in the verdict: the finding adds what used up the graphs."""
    event = next(event for event in MADE.compile.events if event.causes)
    frame = event.frame
    place = Place(file=frame.file, line=frame.line, function=frame.function)
    cause = replace(event.causes[0], finding="F1")
    section = replace(MADE.compile, events=(replace(event, causes=(cause,)),))
    hit = replace(at_limit(frame.function), id="F9", location=place)
    hit = replace(hit, evidence={"limit": 8, "compile_ids": [event.compile_id]})
    made = replace(MADE, compile=section, findings=(*MADE.findings, hit))
    shown = render(made, complete=True)
    assert f"finding 1 used up the 8 graphs of {frame.function}" in shown


def with_followers() -> Receipt:
    """A receipt in which all findings but the first, a note among them, follow from that."""
    first, *others = MADE.findings
    followers = [replace(item, follows=first.id) for item in others]
    followers[-1] = replace(followers[-1], severity="info")
    return replace(MADE, findings=(replace(first, rule="CD202"), *followers))


def test_what_follows_from_a_finding_is_one_line_below_it() -> None:
    """On a screen, on a page and in Markdown; with --all each stands for itself, after the root."""
    made = with_followers()
    count = len(made.findings) - 1
    seconds = format_seconds(sum(other.cost_s or 0.0 for other in made.findings[1:]))
    line = f"{count} findings follow from it ({seconds}), of code that this break makes torch"
    shown = render(made)
    assert line in " ".join(shown.split())
    assert "more: compilediag" not in shown
    assert "also: " not in shown
    whole = render(made, complete=True)
    assert whole.count("follows from 1: compiled apart only because of that graph break") == count
    assert line in render_markdown(made)
    assert line in render_notebook(made)
    limit = replace(at_limit("f"), id="F9", follows="F1")
    section = replace(made.compile, graph_breaks=1)
    head = build_headline(replace(made, compile=section, findings=(*made.findings, limit)))
    assert "stopped being compiled" not in head.sentence


def test_the_next_command_is_one_everywhere() -> None:
    """On a screen and in a notebook; none below a clean cell."""
    command = choose_command(MADE, " receipt.json")
    assert f"next: compilediag {command}" in render(MADE, suffix=" receipt.json")
    assert f"next: <code>compilediag {command}</code>" in render_notebook(MADE)
    assert "next: " not in render_notebook(replace(MADE, verdict="clean", findings=()))


def with_source(*lines: str, key: str = "CD104-logged", **change: object) -> Receipt:
    """A finding at the last of some lines, whose value three graphs had."""
    first, at = MADE.findings[0], len(lines)
    excerpt = ExcerptRecord(file="model.py", line=at, function="forward", first=1, lines=lines)
    frame = MADE.compile.frames_detail[0].frame
    row = VariedValue(
        frame=frame, process=0, epoch=0, variable="self.logged", rule="CD104", count=2, entries=(),
        values=tuple(ValueInGraph(compile_id=f"0/{n}", value=f"{n} items") for n in range(8)),
    )  # fmt: skip
    about = {"rule": "CD104", "variable": "self.logged", "key": key} | change
    own = replace(first, excerpts=(excerpt,), **about)
    in_torch = Writer(function="train", file="site-packages/torch/nn/modules/module.py", line=2902)
    other = replace(row, variable="x", writers=(in_torch,))  # which says nothing of the program
    section = replace(MADE.compile, varied=(row, other))
    return replace(MADE, compile=section, findings=(own,))


def test_a_finding_shows_its_line_and_what_the_value_was() -> None:
    """Both indented as in the file, less what they share; what varied stands above it."""
    made = with_source("    def forward(self, x):", "        self.logged.append(x)")
    varied, finding = (part.splitlines() for part in render(made).split("\n\n")[1:3])
    assert varied == [
        "  what varied  values",
        "  self.logged  0 items → 1 items → 2 items → 3 items → 4 items → …",
        "  x            0 items → 1 items → 2 items → 3 items → 4 items → …",
    ]
    assert re.fullmatch(r"  1  `self.logged` grows +0.18 s · step 1  CD104-logged", finding[0])
    assert finding[1:] == [
        "     model.py:2 in forward · guarded at model.py:7 in forward",
        "     1 │ def forward(self, x):",
        "   ▸ 2 │     self.logged.append(x)",
        "       │     0 items → 1 items → 2 items → 3 items → 4 items → …",
        "     advice: allocate pos.pe at its largest size in __init__",
    ]


@pytest.mark.parametrize(("count", "said"), [(2, "fc.weight, bias_a_mu"), (9, "fc.weight, +8")])
def test_what_had_the_same_value_in_each_graph_is_one_row(count: int, said: str) -> None:
    """As the parameters of a network that is frozen, beside one that is not."""
    made = with_source("x = 1")
    row = replace(made.compile.varied[0], rule="CD117", variable="fc.weight")
    others = [replace(row, variable=f"fc.bias_{letter}_mu") for letter in "abcdefgh"][: count - 1]
    section = replace(made.compile, varied=(row, *others, made.compile.varied[1]))
    shown = render(replace(made, compile=section), RenderOptions(100)).splitlines()
    assert [line for line in shown if line.startswith(f"  {said}")]
    assert sum("0 items" in line for line in shown) == 2  # and that of `x`


@pytest.mark.parametrize(
    ("rule", "variable", "title", "kind"),
    [
        ("CD116", "argument 0", "another optimizer", "value"),
        ("CD105", "x", "dimensions are not marked alike in all calls", "marking"),
    ],
)
def test_a_position_is_no_name_and_a_mark_no_size(
    rule: str, variable: str, title: str, kind: str
) -> None:
    evidence = {**MADE.findings[0].evidence, "kind": kind}
    made = with_source("x = 1", rule=rule, variable=variable, title=title, evidence=evidence)
    assert f"{title}: `{variable}`" in render(made)


def test_what_a_break_carries_on_has_the_line_of_the_break() -> None:
    """The items of a list that the line of the break makes are one row; sizes are elsewhere."""
    made = with_source("x = 1")
    row, other = made.compile.varied
    resumed = replace(row.frame, function="torch_dynamo_resume_in_forward_at_12")
    carried = replace(row, frame=resumed, rule="CD107")
    values = tuple(replace(value, value=f"{n}") for n, value in enumerate(row.values))
    rows = (
        replace(carried, variable="___stack0[0]"),
        replace(carried, variable="___stack0[1]", values=values),
        replace(carried, variable="___stack1", rule="CD105"),
        other,
    )
    shown = render(replace(made, compile=replace(made.compile, varied=rows)), RenderOptions(120))
    assert shown.count("line 12: value") == 1
    assert "line 12: value[*]" in shown


def test_instances_differ_and_do_not_change() -> None:
    made = with_source("x = 1", key="CD117-bias", rule="CD117", variable="fc.bias")
    assert "`fc.bias` differs between instances that share the code" in render(made)


def test_frames_of_one_name_are_told_apart_by_their_lines() -> None:
    """Each module has its `forward`: a table with that word alone says nothing of whose value."""
    made = with_source("x = 1")
    row, other = made.compile.varied
    elsewhere = replace(other.frame, file="models/gan.py", line=40)
    section = replace(made.compile, varied=(row, replace(other, frame=elsewhere)))
    shown = render(replace(made, compile=section), RenderOptions(100))
    assert re.search(r"self\.logged +forward \(model\.py:13\) ", shown)
    assert re.search(r"x +forward \(models/gan\.py:40\) ", shown)


def test_which_of_two_frames_of_one_name_is_compiled_no_more() -> None:
    """By its place: the line above the findings is all that a short screen shows of it."""
    frame = MADE.compile.frames_detail[0]
    other = replace(frame, frame=replace(frame.frame, file="gan.py", line=70))
    section = replace(MADE.compile, frames_detail=(frame, other))
    hit = at_limit(frame.frame.function)
    head = build_headline(replace(MADE, compile=section, findings=(*MADE.findings, hit)))
    assert head.sentence.startswith("forward (model.py:3) stopped being compiled at step 8")


@pytest.mark.parametrize(
    ("values", "said"),
    [(("1e-05", "0.00012", "0.5"), "changes"), (("0 items", "1 item", "2 items"), "grows")],
)
def test_a_float_changes_and_does_not_grow(values: tuple[str, ...], said: str) -> None:
    """A learning rate that warms up is no container."""
    made = with_source("x = 1")
    (row, _) = made.compile.varied
    numbers = tuple(ValueInGraph(compile_id=f"0/{n}", value=v) for n, v in enumerate(values))
    section = replace(made.compile, varied=(replace(row, values=numbers),))
    assert f"`self.logged` {said} " in render(replace(made, compile=section))


def test_a_title_that_is_cut_says_so() -> None:
    """Two lines of it are drawn."""
    made = with_source("x = 1")
    title = "graph break: " + " ".join(f"word{n}" for n in range(40))
    own = replace(made.findings[0], rule="CD204", variable=None, title=title)
    shown = render(replace(made, findings=(own,)), RenderOptions(100)).splitlines()
    at = next(n for n, line in enumerate(shown) if "graph break: word0" in line)
    assert shown[at + 1].endswith("…")
    assert "word" not in shown[at + 2]


EVIL_LINE = "\tx = '\x1b[2J\u202e[bold]' * 3  # 宽宽宽宽宽宽宽宽宽宽宽宽宽宽宽宽宽宽宽宽宽宽宽"


@pytest.mark.parametrize("options", [RenderOptions(40), RenderOptions(40, ascii_only=True), PLAIN])
def test_hostile_source_is_inert_and_fits(options: RenderOptions) -> None:
    """Escapes, characters that reorder text or are wide, in a line, a key and a value."""
    made = with_source(EVIL_LINE, EVIL_LINE, key=f"CD104-{EVIL_LINE}")
    for text in (render(made, options), render_finding(1, made.findings[0], made, options)):
        assert acting(text) == set()
        assert all(measure_width(line) <= options.width for line in text.splitlines())
        assert text.isascii() or not options.ascii_only


def test_ten_thousand_findings_are_one_screen() -> None:
    """Of which the first are drawn, and the others counted."""
    made = with_source("x = 1")
    text = render(replace(made, findings=made.findings * 10_000))
    assert text.count("\n") <= SCREEN_LINES
    assert re.search(r"^  \+999\d more: compilediag show --all$", text, re.MULTILINE)


LONG = {"kind": "environment", "setting": "SOURCES", "risk": ""}


def test_a_setting_is_one_line_to_copy() -> None:
    """However long: a line that we broke could not be pasted into a shell."""
    made = stored("findings")
    found = [
        replace(
            item,
            fix=replace(
                item.fix,
                recipe="first_call_eager",
                candidates=(CandidateRecord(**LONG, value=value),),
            ),
        )
        for item, value in zip(made.findings, (f"L['{'n' * 90}']", "L['x']:0"), strict=False)
    ]
    made = replace(made, findings=tuple(found))
    lines = render(made, RenderOptions(width=60), complete=True).splitlines()
    exports = [line.strip().removeprefix("no edit: ") for line in lines if "export" in line]
    values = (f"L['{'n' * 90}']", "L['x']:0")
    joined = ",".join(values)
    assert exports == [f'export SOURCES="{value}"' for value in (*values, joined)]


def test_who_changed_a_value_in_a_library_can_be_seen() -> None:
    """Only of the latest run, which can be repeated, and where no line of the program is known."""
    made = stored("findings")
    first = made.findings[0]
    place = Place(file="/venv/lib/python3.11/site-packages/peft/layer.py", line=7, function="f")
    evidence = {**first.evidence, "writers": []}
    hidden = replace(
        first, rule="CD106", location=place, ownership="third_party", evidence=evidence
    )
    shown = replace(made, findings=(hidden,))
    assert "compilediag run --trace-writes" in render(shown)
    assert "--trace-writes" not in render(made) + render(shown, suffix=" r.json")


@pytest.mark.parametrize(("variants", "kind"), [(6, "good"), (7, "warn"), (8, "warn")])
def test_a_function_about_to_run_eager_has_no_tick(variants: int, kind: str) -> None:
    """All its graphs may be wanted: the next one, or the one after it, is none."""
    found = stored("clean")
    (detail, *_) = found.compile.frames_detail
    room = replace(detail.headroom, variants=variants, limit=8)
    frames = (replace(detail, headroom=room),)
    shown = build_headline(replace(found, compile=replace(found.compile, frames_detail=frames)))
    assert shown.kind == kind
    room_left = {7: "for one more graph", 8: "for no more graph"}.get(variants, "clean")
    assert room_left in shown.sentence


def test_headline_without_a_verdict_does_not_claim_one() -> None:
    """A receipt without a verdict (made from an old log) is neither clean nor bad."""
    shown = build_headline(replace(stored("clean"), verdict=None))
    assert shown.kind == "blind"
    assert shown.sentence.startswith("no verdict")


# --- a finding, frames, a comparison -------------------------------------------------------------


def test_ids_of_findings_replace_the_join_by_family_and_variable() -> None:
    """A cause belongs to the finding that it names, also where family or variable differ."""
    raw = msgspec.to_builtins(stored("findings"))
    for event, ids in zip(raw["compile"]["events"][1:3], (["F1"], ["F2", "F3"]), strict=True):
        for cause, finding in zip(event["causes"], ids, strict=True):
            cause["finding"] = finding
    made = msgspec.convert(raw, Receipt)
    first, _, third = made.findings[:3]
    assert [cause.variable for cause in list_causes(first, made)] == ["pos.pe"]
    assert [cause.variable for cause in list_causes(third, made)] == ["pos.pe"]
    assert [event.compile_id for event in list_compiles(third, made)] == ["0/2"]


def test_a_comparison_reports_that_only_the_code_differs() -> None:
    """Equal counts of another commit: the first line does not claim that nothing changed."""
    before, raw = stored("findings"), msgspec.to_builtins(stored("findings"))
    raw["header"]["provenance"]["git_commit"] = "another"
    text = comparison_screen(compare(before, msgspec.convert(raw, Receipt)))
    assert text.startswith(
        "the same counts; only code, environment or tracked configurations differ"
    )
    assert "code (1)" in text
    assert comparison_screen(compare(before, before)).startswith("the same counts; nothing changed")


EVIL = "export X=1 | `<script>` @user http://evil ]( \x1b[31m\u202e\n::error::x"


def with_fix(change: str, *, proved: bool) -> Receipt:
    """A receipt whose findings have a proved change, or one that was refused."""
    figures = (ProofFigure(name="recompiles", before=5.0, after=0.0),)
    point = ProofPoint(name="finding", passed=True, sentence="recompiles 5 → 0", figures=figures)
    proof = ProofRecord(kind="environment", change=change, risk=change, runs=3, points=(point,))
    refused = RefusedChange(change=change, reason="5 of 5 recompiles remain")
    made = stored("findings")

    def changed(item: FindingRecord) -> FindingRecord:
        more = {"proof": proof} if proved else {"refused": (refused,)}
        return replace(item, fix=replace(item.fix, **more))

    return replace(made, findings=tuple(map(changed, made.findings)))


def test_a_proved_change_is_shown_with_what_it_did() -> None:
    """On the screen as a line to copy, in Markdown as code, in `explain` with each point."""
    line = "export X=" + "x" * 500
    made = with_fix(line, proved=True)
    assert f"     proved: {line}\n             recompiles 5 → 0 · 3 runs\n" in render(made)
    assert f"; proved: `{line}` (recompiles 5 → 0)" in render_markdown(made)
    text = render_finding(1, made.findings[0], made, PLAIN)
    assert re.search(r"^ +proved: +export", text, re.MULTILINE)
    assert re.search(r"^  finding +recompiles 5 → 0$", text, re.MULTILINE)
    assert "compilediag fix tries changes" not in text


def test_what_is_not_proved_is_said() -> None:
    """With the reason, where something was tried."""
    made = with_fix("export X=1", proved=False)
    text = render_finding(1, made.findings[0], made, PLAIN)
    assert re.search(r"^  verified +no: no change that was tried holds$", text, re.MULTILINE)
    assert re.search(r"^  refused +export X=1 \(5 of 5 recompiles remain\)$", text, re.MULTILINE)
    assert "proved" not in render_markdown(made) + render(made)
    made = stored("findings")
    assert "no: compilediag fix tries changes" in render_finding(1, made.findings[0], made, PLAIN)


# --- Markdown ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "made",
    [stored("hostile"), with_fix(EVIL, proved=True), with_fix(EVIL, proved=False)],
    ids=["texts", "proved", "refused"],
)
def test_hostile_texts_are_inert(made: Receipt) -> None:
    """Nothing of the target becomes markup, a mention, a link, another cell, or a command."""
    text = render_markdown(made)
    for drawn in (text, render(made), render_finding(1, made.findings[0], made, PLAIN)):
        assert acting(drawn) == set()
        assert not any(line.lstrip().startswith("::") for line in drawn.splitlines())
    outside = re.sub(r"(`+)(?:(?!\1).)+\1", "", text)
    assert not any(each in outside for each in ("<script>", "@user", "http://"))
    rows = [line for line in text.splitlines() if line.startswith("|")]
    assert {len(re.findall(r"(?<!\\)\|", row)) for row in rows} == {8}


@pytest.mark.parametrize(
    ("raw", "shown"),
    [("a", "`a`"), ("a`b", "`` a`b ``"), ("``", "``` `` ```"), ("a|b", "`a\\|b`"), ("", "` `")],
)
def test_code_span_cannot_be_left(raw: str, shown: str) -> None:
    """The fence is longer than any run of backticks inside."""
    assert quote_code(raw) == shown


def test_prose_is_escaped() -> None:
    """Signs of Markdown are escaped, mentions and links broken."""
    assert escape_prose("*a* [b](c) <i> @x") == "\\*a\\* \\[b\\](c) \\<i\\> @<!-- -->x"


# --- a notebook's cell ---------------------------------------------------------------------------


class Reader(HTMLParser):
    """Tags, attributes and text, and whether every tag that opens is closed."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.tags: set[str] = set()
        self.attributes: set[str] = set()
        self.open: list[str] = []
        self.said = ""
        self.feed(html)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        self.attributes |= {name for name, _ in attrs}
        self.open += [] if tag == "br" else [tag]

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.said += data


@pytest.mark.parametrize("name", CASES)
def test_a_fragment_holds_no_script_and_closes_its_tags(name: str) -> None:
    """Whatever the receipt holds, the tags and attributes are the view's own; every finding has its
    rule and its fix."""
    made = stored(name)
    read = Reader(render_notebook(made))
    assert read.open == []
    own = {"div", "p", "strong", "ul", "li", "table", "thead", "tbody", "tr", "th", "td", "code"}
    assert read.tags <= own | {"br"}
    assert read.attributes <= {"class", "style", "scope"}
    assert build_headline(made).sentence in read.said
    for _, finding in list_main_findings(made) if name != "hostile" else ():
        assert finding.rule in read.said
        assert finding.fix.summary[:40] in read.said


def test_markup_stays_text_and_a_long_table_ends_with_what_is_left_out() -> None:
    """A title, a variable and a fix that look like HTML; ten thousand findings."""
    made = stored("findings")
    evil = "<img src=x onerror=alert(1)>"
    first = made.findings[0]
    fix = replace(first.fix, summary=evil)
    hostile = replace(first, title=evil, variable=evil, fix=fix)
    html = render_notebook(replace(made, findings=(hostile,) * 10_000))
    assert "<img" not in html
    assert html.count("&lt;img") >= 3
    assert html.count("<tr>") == MAX_FINDINGS + 1
    assert f"and {10_000 - MAX_FINDINGS} more in the receipt" in html


# --- the text of an issue ------------------------------------------------------------------------


def issue(found: Receipt, program_of: Callable[[int], str] | None = None) -> str:
    """All findings, with a program each where one can be made."""
    numbers = range(1, len(found.findings) + 1)
    programs = {} if program_of is None else {number: program_of(number) for number in numbers}
    return render_issue(found, numbers, programs)


def test_hostile_text_of_an_issue_is_inert() -> None:
    """Nothing of the target becomes a tag, a link, an image or a mention."""
    text = issue(stored("hostile"), lambda _: "```\n</details>\n<script>alert(1)</script>\n")
    parser = MarkdownIt("commonmark", {"html": True})
    tokens = [inner for token in parser.parse(text) for inner in (token, *(token.children or ()))]
    written = [token.content for token in tokens if token.type.startswith("html")]
    html = {line for content in written for line in content.strip().splitlines()}
    titles = ("All that was recorded on it", "A small program with the same cause")
    own = {f"<details><summary>{title}</summary>" for title in titles}
    assert html <= {"</details>", "<!-- -->", *own}
    assert not [token for token in tokens if token.type in ("link_open", "image")]
    assert "\x1b" not in text


def test_the_first_findings_come_whole_and_the_rest_is_counted() -> None:
    """GitHub refuses longer ones."""
    found = stored("findings")
    text = issue(replace(found, findings=found.findings[:1] * 200), lambda _: "x = 1\n" * 10_000)
    assert len(text) <= summary.MAX_CHARS + 100
    assert "… cut; the receipt has the rest" in text
    shown = text.count("\n### ")
    assert shown >= summary.MAX_CHARS // (3 * summary.MAX_BLOCK_CHARS)
    assert f"{200 - shown} more are left out" in text


FINDINGS = str(VIEWS / "findings.json")


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (("explain", "2", FINDINGS, "--issue"), 0, "### 2. "),
        (("explain", "--issue", FINDINGS), 0, "### 1. "),
        (("explain", "99", FINDINGS, "--issue"), 2, "and no 99"),
        (("explain", "x", FINDINGS, "--issue"), 2, "the number of a finding"),
        (("show", "--issue", "2", FINDINGS), 0, "### 2. "),
        (("show", FINDINGS, "--issue"), 0, "### 1. "),
        (("show", "--issue", FINDINGS), 0, "### 1. "),
        (("show", "--issue", "1", "--md", FINDINGS), 2, "give one"),
    ],
)
def test_the_number_of_an_issue_may_be_left_out(words, code, said, capsys) -> None:
    """Then all findings are in it; a wrong number is one sentence. `show --issue` is its former
    place."""
    assert cli.main([*words]) == code
    shown = capsys.readouterr()
    assert said in (shown.err if code else shown.out)
    assert code or ("### 1. " in shown.out) == ("2" not in words)


if __name__ == "__main__":
    for case in CASES:
        (VIEWS / f"{case}.txt").write_text(screens(case), encoding="utf-8")


def test_a_clean_run_of_changed_sources_leads_to_its_proof() -> None:
    """Where a recorded run of the command has other sources, its results are not known to be equal;
    nor are those of a state that a certificate did not prove."""
    made = stored("clean")
    assert choose_command(made, "").startswith("gate --update")
    assert choose_command(made, "", changed=True).startswith("certify -- ")
    refused = replace(made, extensions={"certificate": {"verdict": "refused"}})
    assert choose_command(refused, "").startswith("certify -- ")
    proved = replace(made, extensions={"certificate": {"verdict": "proved"}})
    assert choose_command(proved, "").startswith("gate --update")


@pytest.mark.parametrize("status", ["interrupted", "failed"])
def test_a_run_without_a_finding_that_did_not_end_well_leads_to_another(status: str) -> None:
    made = replace(stored("clean"), status=status)
    assert choose_command(made, "").startswith("run ")


def test_explain_names_what_changed_with_it() -> None:
    """All that one act changed: the layers of a kind once, with their number."""
    made = stored("killed")
    place = Place(function="forward", file="m.py", line=1)
    parts = tuple(
        PartRecord(
            rule="CD115",
            kind=None,
            variable=name,
            expected=None,
            actual=None,
            location=place,
            recompiles=1,
        )
        for name in ("ups[0].hooks", "ups[1].hooks", "post.hooks")
    )
    text = render_finding(1, replace(made.findings[0], parts=parts), made, PLAIN)
    assert "with it     ups[*].hooks (2 values), post.hooks\n" in text
    assert "with it" not in render_finding(1, made.findings[0], made, PLAIN)


def test_what_came_after_the_last_step_is_in_none() -> None:
    made = stored("killed")
    count = made.steps.count
    for step, said in ((count - 1, f"step {count - 1} "), (count, "after the last step ")):
        found = replace(made.findings[0], steps=(step,), count=1)
        assert said in render(replace(made, findings=(found,)))


def test_a_loss_whose_finding_has_no_number_is_said_without_one() -> None:
    """A receipt that somebody else wrote may hold any text there."""
    made = stored("breaks")
    sites = tuple(replace(site, finding="F\u00b2; rm") for site in made.compile.breaks)
    shown = render(replace(made, compile=replace(made.compile, breaks=sites)))
    assert "graph breaks in calls of what is compiled\n" in shown
