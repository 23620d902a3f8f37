"""Formats of a gate for people: on a terminal the verdict first, then every failure, what is known,
what is better; as Markdown for a job's summary, never longer than GitHub takes, with all text of
the target in code spans, in which nothing is markup, a mention or a link."""

from __future__ import annotations

from collections.abc import Sequence

from compilediag.compare.gate.judgement import Judgement
from compilediag.diagnosis.codes import REGISTER
from compilediag.views import markdown
from compilediag.views.document import Block, Code, Linked, Listing, Paragraph, Table, Text
from compilediag.views.format import format_more, format_seconds, pluralize
from compilediag.views.gate.messages import (
    LINE_CHARS,
    UPDATE,
    describe_outcome,
    describe_standard,
    escape_commands,
    format_change,
    format_explain,
    format_kind,
    format_place,
    format_short,
    format_title,
    get_outcome,
    merge_in_turn,
    sort_worst_first,
)
from compilediag.views.style import COLORS, RenderOptions
from compilediag.views.terminal import INDENT
from compilediag.views.text import measure_width

MAX_IN_FULL = 5
"""Failures of a configuration shown with every detail; the others get a line each."""
MAX_LINES = 50
"""Failures shown in one line; the other formats list them all."""
MAX_IMPROVEMENTS = 5
MAX_NOTICES = 10
MAX_CONFIGURATIONS = 20
MAX_BYTES = 1_000_000
"""GitHub refuses a step's summary of more than 1 MiB, whole."""
FAILURE_BYTES = 600_000
"""Size of the rows of failures, which come before all else about a configuration."""
MAX_COUNTS = 20
MAX_CHARS = 300
"""Longest message, guard or fix."""


def render_terminal(judgements: Sequence[Judgement], options: RenderOptions) -> str:
    """Render every configuration, those that did not pass first; line one is the verdict."""
    ordered = sort_worst_first(judgements)
    lines: list[str] = []
    if not ordered:
        sentence = f"{options.get_sign('blind')} nothing was judged, which is no pass"
        lines.append(options.paint(sentence, "yellow"))
    elif len(ordered) > 1:
        kinds = [get_outcome(judgement) for judgement in ordered]
        bad = len(kinds) - kinds.count("good")
        sentence = "passed" if not bad else f"failed for {bad} of them"
        worst = "bad" if "bad" in kinds else kinds[0]
        number = pluralize(len(kinds), "configuration")
        line = f"{options.get_sign(worst)} gate of {number}: {sentence}"
        lines.append(options.paint(line, COLORS[worst]))
    for judgement in ordered[:MAX_CONFIGURATIONS]:
        lines += [*([""] if lines else []), *_render_head(judgement, options)]
        failures = judgement.failures
        for number, issue in enumerate(failures[: MAX_IN_FULL + MAX_LINES], 1):
            head = f"{number:>3}  {options.clean(format_title(issue), 200)}"
            if number > MAX_IN_FULL:
                lines += [""] if number == MAX_IN_FULL + 1 else []
                where = format_place(issue, options, 40) or options.clean(issue.message, 200)
                lines.append(options.truncate(f"{head}{options.dot}{where}", options.width))
                continue
            cost = f"cost {format_seconds(issue.cost_s)}" if issue.cost_s is not None else ""
            facts = (
                format_place(issue, options, 60),
                format_change(issue, options.arrow),
                cost,
                format_explain(issue),
            )
            lines += ["", options.paint(options.truncate(head, options.width), "bold")]
            lines += options.wrap(options.clean(issue.message), INDENT)
            lines += options.wrap_parts([options.clean(fact) for fact in facts if fact], INDENT)
            if issue.guard and issue.guard not in issue.message:
                lines += options.wrap(options.clean(issue.guard), f"{INDENT}guard: ")
            if issue.fix:
                lines += options.wrap(options.clean(issue.fix), f"{INDENT}fix: ", style="cyan")
            if issue.proved:
                proved = options.clean(issue.proved, LINE_CHARS)
                lines += options.wrap(proved, f"{INDENT}proved: ", style="green")
        hidden = len(failures) - MAX_IN_FULL - MAX_LINES
        lines += format_more(hidden, ": compilediag gate --format json", INDENT)
        lines += _render_passing(judgement, options)
    hidden = format_more(len(ordered) - MAX_CONFIGURATIONS, " configurations: --format json", "")
    lines += ["", *hidden] if hidden else []
    return "\n".join(escape_commands(line.rstrip()) for line in lines) + "\n"


def _render_head(judgement: Judgement, options: RenderOptions) -> list[str]:
    kind = get_outcome(judgement)
    sentence = f"{options.get_sign(kind)} {options.clean(describe_outcome(judgement))}"
    base = options.clean(describe_standard(judgement), 300)
    label = f"configuration {options.clean(judgement.configuration, 120)}"
    label += base and f" against {base}"
    if measure_width(sentence) + 3 + measure_width(label) <= options.width:
        lines = [f"{options.paint(sentence, COLORS[kind])}   {options.paint(label, 'dim')}"]
    else:
        first, rest = sentence.partition(" ")[::2]
        lines = options.wrap(rest, f"{first} ", style=COLORS[kind])
        lines += options.wrap(label, "  ", "    ", style="dim")
    changed = [
        options.clean(
            count.name.replace("_", " ") + f" {count.before:,} {options.arrow} {count.after:,}"
        )
        for count in judgement.counts
        if count.change
    ]
    return lines + options.wrap_parts(changed, "  ", style="dim")


def _render_passing(judgement: Judgement, options: RenderOptions) -> list[str]:
    """Render all that the baseline allows, in one line; what is better; the notices."""
    lines: list[str] = []
    if known := judgement.known:
        sentence = ", ".join(options.clean(format_short(issue), 60) for issue in known[:20])
        line = f"  {len(known):,} known and allowed: {sentence}"
        lines += ["", options.paint(options.truncate(line, options.width), "dim")]
    if better := judgement.improvements:
        head = f"  better than the baseline ({len(better):,}):"
        lines += ["", options.paint(head, "green")]
        for improvement in better[:MAX_IMPROVEMENTS]:
            lines += options.wrap(options.clean(improvement.message, 300), "    ", "      ")
        lines += format_more(len(better) - MAX_IMPROVEMENTS, indent="    ")
        hint = "a strict gate fails until the baseline holds it" if judgement.strict else "keep it"
        lines += options.wrap(f"{hint}: {UPDATE}", "    ", "      ")
    for notice in judgement.notices[:MAX_NOTICES]:
        lines += options.wrap(options.clean(notice), f"  {options.get_sign('warn')} ", "    ")
    hidden = len(judgement.notices) - MAX_NOTICES
    return lines + format_more(hidden, " notices: --format json", "    ")


# --- Markdown ------------------------------------------------------------------------------------


def render_markdown(judgements: Sequence[Judgement], options: RenderOptions) -> str:
    """Render configurations under their verdicts; what is cut is counted, with where to find it."""
    ordered = sort_worst_first(judgements)
    rows: dict[int, list[tuple[Text, ...]]] = {id(judgement): [] for judgement in ordered}
    failures = merge_in_turn(ordered)
    left, room = 0, FAILURE_BYTES
    for number, (judgement, issue) in enumerate(failures):
        own = rows[id(judgement)]
        name = issue.variable or issue.function
        known = REGISTER.get(issue.rule)
        what: list[str] = []
        if known is not None:
            what = [Linked(known.code), " "]
        elif issue.rule and issue.kind in ("count", "limit"):
            what = [Code(issue.rule.replace("_", " ")), " "]
        what += [format_kind(issue), *([" ", Code(name)] if name else [])]
        why = [Code(options.clean(issue.message, MAX_CHARS))]
        if issue.guard and issue.guard not in issue.message:
            why += [" guard: ", Code(options.clean(issue.guard, MAX_CHARS))]
        where = (Code(format_place(issue, options)),) if issue.file else ()
        cost = format_seconds(issue.cost_s) if issue.cost_s is not None else ""
        fix: list[str] = [Code(options.clean(issue.fix, MAX_CHARS))] if issue.fix else []
        fix += ["; proved: ", Code(options.clean(issue.proved, LINE_CHARS))] if issue.proved else []
        fix += [" (", Code(format_explain(issue)), ")"] if format_explain(issue) else []
        cells = (tuple(what), tuple(why), where, format_change(issue), cost, tuple(fix))
        row = (str(len(own) + 1), *cells)
        room -= len(markdown.render_row(row).encode()) + 1
        if room < 0:
            left = len(failures) - number
            break
        own.append(row)
    lines = [] if judgements else ["### ❔ nothing was judged, which is no pass"]
    cut: list[str] = []
    room = MAX_BYTES
    for index, judgement in enumerate(ordered):
        sentence = _render_configuration(judgement, rows[id(judgement)])
        room -= len(sentence.encode()) + 1
        if room < 0:
            cut.append(pluralize(len(ordered) - index, "more configuration"))
            break
        lines.append(sentence)
    cut += [pluralize(left, "more failure")] if left else []
    for omitted in cut:
        lines += [f"**{omitted}**: `compilediag gate --format json` has them all.", ""]
    return "\n".join(lines) + "\n"


def _render_configuration(judgement: Judgement, rows: Sequence[Sequence[Text]]) -> str:
    base = describe_standard(judgement)
    against = (" against ", Code(base)) if base else ()
    label = ("configuration ", Code(judgement.configuration), *against)
    blocks: list[Block] = [Paragraph((*label, ", receipt ", Code(judgement.receipt_id)))]
    if rows:
        head = ("#", "what", "why", "where", "how often", "cost", "fix")
        blocks.append(Table(head, rows, right=("#", "cost")))
    if judgement.improvements:
        better = [Code(improvement.message) for improvement in judgement.improvements]
        blocks.append(Listing("Better than the baseline", better))
        blocks.append(Paragraph(("Keep it: ", Code(UPDATE))))
    if judgement.counts and judgement.baseline:
        counts = [
            (Code(count.name.replace("_", " ")), f"{count.before:,}", f"{count.after:,}")
            for count in judgement.counts[:MAX_COUNTS]
        ]
        blocks.append(Table(("count", "before", "after"), counts, right=("before", "after")))
    known = [
        (Code(format_short(issue)), ": ", Code(issue.reason) if issue.reason else "no reason given")
        for issue in judgement.known
    ]
    lists = (("Known and allowed", known), ("Notices", [Code(text) for text in judgement.notices]))
    blocks += [Listing(name, texts) for name, texts in lists if texts]
    sign = markdown.SIGNS[get_outcome(judgement)]
    return f"### {sign} {describe_outcome(judgement)}\n\n{markdown.render(blocks)}"
