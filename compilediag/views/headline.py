"""Sentences on a receipt, without signs or colour, for the screen and for Markdown: the verdict,
what lasts first, and its counts, why it is blind, how the program ended, a trainer's figures."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence

from msgspec import Struct

from compilediag.diagnosis.codes import BLIND, EAGER, SIZES, WRONG
from compilediag.receipt.finding_keys import normalize_function
from compilediag.receipt.schema.compiles import (
    FindingRecord,
    FrameDetail,
    GraphBreak,
    Place,
    mask_indices,
)
from compilediag.receipt.schema.evidence import AnyEvidence, BreakEvidence, GuardEvidence
from compilediag.receipt.schema.receipt import Receipt
from compilediag.receipt.schema.record import FrameName
from compilediag.views.document import Kind
from compilediag.views.format import format_percent, format_seconds, join_words, pluralize
from compilediag.views.sentence import get_title
from compilediag.views.text import truncate

MAX_REASON_CHARS = 160
MAX_RANKS = 8
MAX_NAMED, MAX_NUMBERS = 2, 4
_PACE = 3
"""Recompiles that a pace is taken from."""
MIN_WHOLE = 100
"""Rates from this size on are shown as whole numbers."""

_TRAINER_NOTE = "train_log: "
"""How reasons in `completeness` begin that are notes on a trainer's output."""

_NOT_KNOWN = ("what torch.compile did is not known",)

_NOTHING_RAN = frozenset(
    {
        *("ahead_of_time", "eager", "failed", "interrupted"),
        *("never_ran", "switched_off", "torch_modules"),
    }
)
"""Reasons that CD901 gives for a program that was observed and compiled nothing."""


class Headline(Struct, frozen=True):
    """`sentence` says what happened, what stays broken first; `counts` are its facts, in order."""

    kind: Kind
    sentence: str
    counts: tuple[str, ...]
    more: tuple[str, ...] = ()
    """What else: other losses that last, then what recompiles cost."""


def build_headline(receipt: Receipt) -> Headline:
    """Build the headline: what happened in this run, as one sentence."""
    seen = receipt.compile
    total_s = seen.time_s.total
    counts = (
        pluralize(seen.frames, "frame"),
        pluralize(seen.compiles, "compile") + (f" in {format_seconds(total_s)}" if total_s else ""),
        pluralize(seen.graph_breaks, "graph break"),
        pluralize(seen.eager_fallbacks, "eager fallback"),
        *([pluralize(hits, "recompile limit hit")] if (hits := seen.recompile_limit_hits) else []),
        *([_describe_ranks(receipt)] if has_several_ranks(receipt) else []),
    )
    if is_training_alone(receipt):
        figures = ", ".join(_list_figures(receipt))
        return Headline("blind", f"{_get_reporter(receipt)}: {figures}", _NOT_KNOWN)
    recompiles = seen.recompiles
    if receipt.verdict == "blind":
        why = "this run cannot be called clean, because compilediag could not see enough"
        if was_seen(receipt):
            return Headline("blind", _describe_nothing(receipt), counts)
        if recompiles:
            why = f"at least {pluralize(recompiles, 'recompile')}, but the evidence is not complete"
        return Headline("blind", f"blind: {why}", counts)
    if receipt.verdict == "clean":
        frames = [detail for detail in seen.frames_detail if detail.compiles]
        if frames and all(detail.compiles == 1 for detail in frames):
            compiled = pluralize(len(frames), "frame") + " compiled once"
            compiled += " each" if len(frames) > 1 else ""
        else:
            compiled = f"{pluralize(seen.compiles, 'compile')} seen"
        what = f"{compiled}, {_format_recompiles(receipt, _format_steps(receipt))}"
        if receipt.status == "complete":
            if full := _describe_nearly_full(receipt):
                return Headline("warn", f"{full[0]}: {what}", counts)
            return Headline("good", f"clean: {what}", counts)
        if receipt.status == "failed":  # a test that fails, an exit code of its own: it ended
            return Headline("warn", f"nothing found in a run that failed: {what}", counts)
        # What came after the end of the record was not seen, so nothing is said of it.
        return Headline("warn", f"nothing found in a run that is not whole: {what}", counts)
    if receipt.verdict is None:
        return Headline("blind", f"no verdict; {_describe_problems(receipt)}", counts)
    unplanned = recompiles > 0 and not _are_all_in_warmups(receipt)
    bad = unplanned or any(finding.severity == "error" for finding in receipt.findings)
    sentence = _describe_recompiles(receipt) if unplanned else _describe_problems(receipt)
    losses = _list_losses(receipt)
    # Recompiles that were all planned are no cost to name beside what stays broken.
    first, *more = [*losses, *([sentence] if unplanned or not losses else [])]
    more += [] if losses or seen.recompile_limit_hits else _describe_nearly_full(receipt)
    return Headline("bad" if bad else "warn", first, counts, tuple(more))


def _describe_nearly_full(receipt: Receipt) -> list[str]:
    """Describe the first frame that one more graph, or two, take over the recompile limit."""
    for detail in receipt.compile.frames_detail:
        room = detail.headroom
        if room.limit is not None and room.limit > 2 and room.limit - room.variants <= 1:
            left = "one more graph" if room.variants < room.limit else "no more graph"
            name = _name_frame(detail.frame, receipt)
            return [f"{name} has room for {left} (recompile limit {room.limit})"]
    return []


def _name_frame(frame: FrameName | Place, receipt: Receipt) -> str:
    """Name a frame by its function; where others have that name, as `forward`, with its place."""
    name = normalize_function(frame.function)
    frames = {detail.frame for detail in receipt.compile.frames_detail}
    if sum(its.function == frame.function for its in frames) > 1:
        name += f" ({frame.file.rpartition('/')[2]}:{frame.line})"
    return name


def _describe_nothing(receipt: Receipt) -> str:
    """Describe why nothing was compiled, in a run that was seen to the end."""
    reason = next((f.title for f in receipt.findings if f.rule in BLIND and f.title), "")
    if reason == "nothing was compiled":
        return f"{reason}: no torch.compile was reached"
    return reason if reason.startswith("nothing was") else f"nothing was compiled: {reason}"


def has_several_ranks(receipt: Receipt) -> bool:
    """True if the run was one of several ranks, however many of them the receipt has."""
    ranks, size = receipt.ranks, receipt.header.run.world_size
    expected = ranks.expected if ranks is not None else None
    return (expected or size or 1) > 1 or (ranks is not None and len(ranks.rows) > 1)


def _describe_ranks(receipt: Receipt) -> str:
    """Describe the ranks that the counts are of: "2 ranks", "1 of 2 ranks: 1", "rank 1 of 2"."""
    ranks, run = receipt.ranks, receipt.header.run
    if ranks is None:
        return f"rank {run.rank} of {run.world_size:,}"
    seen = ranks.totals.ranks if ranks.totals is not None else len(ranks.rows)
    expected = ranks.expected or seen
    if ranks.reported is not None:
        return f"of {ranks.reported:,} of {seen:,} ranks"
    if seen == 1 and expected > 1:
        return f"rank {ranks.rows[0].rank if ranks.rows else run.rank} of {expected:,}"
    return pluralize(seen, "rank") if seen >= expected else f"{seen:,} of {expected:,} ranks"


def _format_steps(receipt: Receipt) -> str:
    """`in 12 steps` behind a blank, or nothing where no step was seen."""
    steps = receipt.steps
    return f" in {pluralize(steps.count, 'step')}" if steps is not None and steps.count else ""


def _describe_recompiles(receipt: Receipt) -> str:
    """Describe how often, on which of several ranks where others did not, and at what cost."""
    text = pluralize(receipt.compile.recompiles, "recompile") + _format_steps(receipt)
    rows = receipt.ranks.rows if receipt.ranks is not None else ()
    guilty = [row.rank for row in rows if row.recompiles]
    if guilty and len(guilty) < len(rows):
        shown = ", ".join(map(str, guilty[:MAX_RANKS]))
        more = f" and {len(guilty) - MAX_RANKS} more" if len(guilty) > MAX_RANKS else ""
        text += f" on rank{'s' if len(guilty) > 1 else ''} {shown}{more} of {len(rows):,}"
    cost_s = receipt.compile.time_s.recompile
    if cost_s is None:
        return f"{text} (their cost was not measured){describe_needs(receipt)}"
    goodput = receipt.goodput
    share = format_percent(cost_s, goodput.wall_s) if goodput is not None else None
    text = f"{text} cost {format_seconds(cost_s)}" + (f", {share} of wall time" if share else "")
    return text + describe_needs(receipt)


def describe_needs(receipt: Receipt) -> str:
    """Describe how many recompiles are behind graph breaks, then, behind a colon, which are wanted
    variants; empty where none is."""
    seen, behind = receipt.compile, _describe_behind(receipt)
    if not seen.wanted:
        return behind
    if seen.wanted == seen.recompiles:
        # Of what a recipe prevents it is not said that the program wants it.
        cured = (f for f in receipt.findings if f.fix.recipe and f.severity != "info")
        if any(finding.rule.startswith("CD1") for finding in cured):
            return f"{behind}: once for each variant; a fix is below"
        return f"{behind}: wanted, one graph for each variant"
    parts = ((seen.avoidable, "avoidable"), (seen.wanted, "wanted"), (seen.undecided, "undecided"))
    return f"{behind}: " + ", ".join(f"{count} {name}" for count, name in parts if count)


def _describe_behind(receipt: Receipt) -> str:
    """Describe how many recompiles are of frames that exist only because of graph breaks which the
    program is to do without, behind a comma; empty where none is."""
    faults = (f.evidence for f in receipt.findings if f.severity != "info")
    breaks = [
        ids for evidence in faults if (ids := BreakEvidence.parse(evidence).recompiles_behind)
    ]
    behind = {compile_id for ids in breaks for compile_id in ids}
    again = [event.compile_id for event in receipt.compile.events if event.kind == "recompile"]
    count, every = sum(map(behind.__contains__, again)), receipt.compile.recompiles
    how_many = f"{count} of them " if count < every else "all " if every > 1 else ""
    return f", {how_many}behind {pluralize(len(breaks), 'graph break')}" if count else ""


def _describe_problems(receipt: Receipt) -> str:
    """Describe what was found beside recompiles of warm-ups, worst first."""
    seen = receipt.compile
    parts: list[str] = []
    if seen.eager_fallbacks:
        parts.append(pluralize(seen.eager_fallbacks, "frame") + " ran eager, without compiled code")
    if seen.graph_breaks:
        parts.append(pluralize(seen.graph_breaks, "graph break"))
    if not parts:
        planned = _are_all_in_warmups(receipt)
        findings = [
            finding for finding in receipt.findings if not (planned and finding.severity == "info")
        ]
        parts.append(pluralize(len(findings), "finding"))
    return f"{', '.join(parts)}{_format_steps(receipt)}; {_format_recompiles(receipt)}"


def _format_recompiles(receipt: Receipt, steps: str = "") -> str:
    sentence = pluralize(receipt.compile.recompiles, "recompile") + steps
    all_planned = _are_all_in_warmups(receipt)
    return sentence + (", all in warm-ups" if all_planned else describe_needs(receipt))


def _are_all_in_warmups(receipt: Receipt) -> bool:
    """True if every recompile belongs to a warm-up for several sizes, which is reported as
    information. One recompile may have several causes, so distinct ids are counted."""
    planned: set[str] = set()
    for finding in receipt.findings:
        compile_ids = AnyEvidence.parse(finding.evidence).compile_ids
        if finding.rule in SIZES and finding.severity == "info":
            planned.update(compile_ids)
        elif compile_ids:
            return False
    return 0 < receipt.compile.recompiles == len(planned)


# --- what lasts ----------------------------------------------------------------------------------


def _list_losses(receipt: Receipt) -> list[str]:
    """List what stays broken, as a recompile does not: a sentence each, the worst first."""
    findings = [finding for finding in receipt.findings if finding.severity != "info"]
    at_limit = [f for f in findings if f.rule == "CD152" and f.follows is None]
    symptoms = [f for f in findings if f.rule == "CD152" and f.follows is not None]
    eager = [finding for finding in findings if finding.rule in EAGER - {"CD152"}]
    wrong = [get_title(finding) for finding in findings if finding.rule in WRONG]
    losses = [f"compiled code does not do what the code does: {wrong[0]}"] if wrong else []
    losses += _describe_first(at_limit, _describe_limit, receipt)
    losses += _describe_first(eager, _describe_eager, receipt)
    losses += _list_eager_frames(eager, receipt)
    noted = {finding.id for finding in receipt.findings if finding.severity == "info"}
    sites = [site for site in receipt.compile.breaks if site.finding not in noted]
    count = receipt.compile.graph_breaks - len(receipt.compile.breaks) + len(sites)
    if count > 0:
        named = _name_functions(map(_get_own_function, sites)) or "what is compiled"
        every = bool(sites) and _are_in_every_graph(sites, receipt)
        which = "every call" if every else "calls"
        some = f"{count} of " if count < receipt.compile.graph_breaks else ""
        counted = some + pluralize(receipt.compile.graph_breaks, "graph break")
        refer = _refer_to(site.finding for site in sites)
        losses.append(f"{counted} in {which} of {named}{refer}")
    losses += _describe_first(symptoms, _describe_limit, receipt)
    return losses + ([] if at_limit or symptoms else _list_forecasts(receipt))


def _list_eager_frames(eager: Sequence[FindingRecord], receipt: Receipt) -> list[str]:
    """List the frames that are compiled no more, and those that a break left without a graph.
    `eager`: the findings that name their frame, which is not named again."""
    count = receipt.compile.eager_fallbacks - receipt.compile.recompile_limit_hits
    frames = [
        detail
        for detail in receipt.compile.frames_detail
        if detail.ran_eager and detail.headroom.variants < (detail.headroom.limit or math.inf)
    ]
    # One that is at the limit of all frames together has room in its own, and is a hit as well.
    known = [_name_frame(its.frame, receipt) for its in frames if its.compiles]
    given_up = known if len(frames) == count else []
    why = "torch gave up a recompile, and every call since then runs eager"
    losses = [f"{_name_functions(given_up)} stopped being compiled: {why}"] if given_up else []
    others = [its.frame for its in frames if _name_frame(its.frame, receipt) not in given_up]
    left = count - len(given_up)
    if eager:
        said = {(at.file, at.function) for found in eager if (at := found.location) is not None}
        breaks = (finding for finding in receipt.findings if finding.rule not in EAGER)
        evidence = (BreakEvidence.parse(finding.evidence) for finding in breaks)
        broken = {place for its in evidence for place in its.eager_frames or ()}
        others = [
            frame
            for frame in others
            if (frame.file, frame.line) in broken and (frame.file, frame.function) not in said
        ]
        left = min(left, len(others))
    if left > 0:
        named = _name_functions(_name_frame(frame, receipt) for frame in others)
        losses.append(f"{pluralize(left, 'frame')} ran eager, without compiled code: {named}")
    return losses


def _get_own_function(site: GraphBreak) -> str:
    """Get the function that a break is in: of one inside torch, that which leads there."""
    led = site.entered_at if site.ownership == "torch" else None
    return site.function if led is None else led.function


def _describe_first(
    findings: Sequence[FindingRecord],
    describe: Callable[[FindingRecord, Receipt], str],
    receipt: Receipt,
) -> list[str]:
    """Describe the first of several findings, with how many more frames have one."""
    more = f", and {pluralize(len(findings) - 1, 'more frame')}" if findings[1:] else ""
    names = [finding.id for finding in findings]
    return [describe(findings[0], receipt) + more + _refer_to(names)] if findings else []


def _refer_to(ids: Iterable[str | None]) -> str:
    """Refer to findings by their numbers on the screen: " (findings 1 and 4)"."""
    numbers = sorted({int(name[1:]) for name in ids if name and name[1:].isdecimal()})
    more = [f"{len(numbers) - MAX_NUMBERS} more"] if len(numbers) > MAX_NUMBERS else []
    named = join_words([*map(str, numbers[:MAX_NUMBERS]), *more])
    return f" ({'finding' if len(numbers) == 1 else 'findings'} {named})" if numbers else ""


def _are_in_every_graph(sites: Sequence[GraphBreak], receipt: Receipt) -> bool:
    """True if no graph of the frames that broke at these sites was compiled without breaking there;
    False where findings do not name them."""
    ids = {site.finding for site in sites}
    findings = (finding for finding in receipt.findings if finding.id in ids)
    broken = [{*AnyEvidence.parse(finding.evidence).compile_ids} for finding in findings]
    made: dict[FrameName, set[str]] = {}
    frames: dict[str, FrameName] = {}
    for event in receipt.compile.events:
        frames[event.compile_id] = event.frame
        made.setdefault(event.frame, set()).add(event.compile_id)
    named = len(broken) == len(ids) and all(frames.keys() & ids for ids in broken)
    return named and all(made[frames[i]] <= ids for ids in broken for i in ids if i in frames)


def _name_functions(names: Iterable[str]) -> str:
    functions = [*dict.fromkeys(map(normalize_function, names))]
    left = len(functions) - MAX_NAMED
    return ", ".join([*functions[:MAX_NAMED], *([f"{left} more"] if left > 0 else [])])


def _describe_limit(finding: FindingRecord, receipt: Receipt) -> str:
    """Describe since when a frame is compiled no more, of how many steps, and what that means."""
    title = finding.title or finding.slug
    limit, place = GuardEvidence.parse(finding.evidence).limit, finding.location
    if place is None or not finding.steps or "eager" not in title:
        return title
    steps = receipt.steps
    of_all = f" of {steps.count:,}" if steps is not None and steps.count else ""
    return (
        f"{_name_frame(place, receipt)} stopped being compiled at step {finding.steps[0]}"
        f"{of_all} (recompile limit {limit}): since then every call that fits none of its graphs "
        "runs eager"
    )


def _describe_eager(finding: FindingRecord, receipt: Receipt) -> str:
    title, place = finding.title or finding.slug, finding.location
    if place is None or place.function in title:
        return title
    return f"{place.function}: {title}".replace(": the frame ran", " ran", 1)


def _list_forecasts(receipt: Receipt) -> list[str]:
    """List frames that go on being compiled again, with the step in which they reach the limit if
    they go on at the pace of their last recompiles."""
    part, steps = receipt.compile, receipt.steps
    forecasts: list[str] = []
    for frame in part.frames_detail if steps is not None else ():
        pace = _find_pace(frame, receipt)
        if pace is None or steps is None or frame.headroom.limit is None:
            continue
        last, interval = pace
        hit = last + round(interval * (frame.headroom.limit - frame.headroom.variants + 1))
        if last + 2 * interval >= steps.count - 1:
            forecasts.append(
                f"at this pace {_name_frame(frame.frame, receipt)} reaches the recompile limit "
                f"({frame.headroom.limit}) at about step {hit}, and runs eager from there"
            )
    return forecasts[:1]


def _find_pace(frame: FrameDetail, receipt: Receipt) -> tuple[int, float] | None:
    """Find the step of a frame's last recompile, and the steps from one to the next; None where
    the last ones do not have one cause, which goes on."""
    again = [
        event
        for event in receipt.compile.events
        if event.kind == "recompile"
        and event.frame == frame.frame
        and (event.process, event.epoch) == (frame.process, frame.epoch)
        and event.need != "wanted"
        and event.step is not None
    ]
    primary = [cause for event in again[-_PACE:] for cause in event.causes[:1]]
    causes = {(cause.rule, mask_indices(cause.variable)) for cause in primary}
    steps = [event.step for event in again[-_PACE:] if event.step is not None]
    if frame.ran_eager or len(steps) < _PACE or len(causes) != 1 or steps[-1] == steps[0]:
        return None
    accepted = [its for its in receipt.compile.accepted_sizes if its.frame == frame.frame]
    are_open = bool(accepted) and all(its.spans[-1][1] >= its.largest for its in accepted)
    if are_open and {rule for rule, _ in causes} <= SIZES:  # they have become dynamic
        return None
    return steps[-1], (steps[-1] - steps[0]) / (_PACE - 1)


# --- blindness, endings, trainers ----------------------------------------------------------------


def was_seen(receipt: Receipt) -> bool:
    """True if nothing was compiled, which was observed, is all that blinds: a count of 0 is one."""
    whys = _list_doubts(receipt)
    # Without a reason in a record that is whole, nothing was asked for.
    known = _NOTHING_RAN | ({"unknown"} if receipt.checks.evidence_complete else set[str]())
    return bool(whys) and all(why in known for why in whys)


def _list_doubts(receipt: Receipt) -> list[str | None]:
    """List the reason that each finding that blinds gives."""
    doubts = (finding.evidence for finding in receipt.findings if finding.rule in BLIND)
    return [AnyEvidence.parse(evidence).why for evidence in doubts]


def list_blind_reasons(receipt: Receipt) -> list[tuple[str, str | None]]:
    """List each reason for blindness with its remedy: findings first, then what they leave out."""
    reasons: dict[str, str | None] = {}
    for finding in receipt.findings:
        if finding.rule in BLIND:
            title = finding.title or finding.slug.replace("-", " ")
            reasons[f"{title} ({finding.rule})"] = finding.fix.summary
    evidence = receipt.completeness
    for text in (*evidence.reasons, *evidence.differences):
        said = text.removeprefix("attach: ").removeprefix("old_torch: ")
        if not text.startswith(_TRAINER_NOTE) and not any(said in known for known in reasons):
            reasons[text] = None
    if not reasons and not receipt.compile.compiles:
        reasons["torch.compile compiled nothing that could be seen"] = None
    return list(reasons.items())


def describe_ending(receipt: Receipt) -> str | None:
    """Describe the end of a run that did not end by itself and well; None for one that did."""
    if receipt.status == "complete":
        return None
    sentence = {
        "failed": "the program failed",
        "killed": "the program was killed",
        "interrupted": "the run was interrupted",
        "partial": "the record of this run is partial",
    }.get(receipt.status, f"the run ended as {receipt.status}")
    code = receipt.header.run.exit_code
    reason = receipt.failure.reason if receipt.failure is not None else None
    # The first line names the exception; a traceback may follow.
    first = reason.strip().partition("\n")[0] if reason else ""
    how = f"(signal {code - 128})" if code and code > 128 else f"(exit code {code})"
    sentence += f" {how}" if code and how not in first else ""
    # The headline of a run in which nothing compiled names it already.
    titles = (finding.title or "" for finding in receipt.findings if finding.rule in BLIND)
    if first and not any(first[:MAX_REASON_CHARS] in title for title in titles):
        sentence += f": {truncate(first, MAX_REASON_CHARS)}"
    return f"{sentence}; the counts cover what was seen before that"


def is_training_alone(receipt: Receipt) -> bool:
    """True if all that is known of a run is what its trainer printed: then its figures are the
    headline, and counts of what torch.compile did are not shown."""
    seen = receipt.compile
    nothing = not (seen.frames or seen.compiles or seen.graph_breaks or seen.eager_fallbacks)
    alone = set(_list_doubts(receipt)) == {"train_log"}
    return receipt.verdict == "blind" and nothing and alone and bool(_list_figures(receipt))


def list_trainer_figures(receipt: Receipt) -> list[str]:
    """List steps, rates and loss from a trainer's own output; none where they are the headline."""
    figures = [] if is_training_alone(receipt) else _list_figures(receipt)
    return [f"{_get_reporter(receipt)} says: {figures[0]}", *figures[1:]] if figures else []


def _get_reporter(receipt: Receipt) -> str | None:
    return None if receipt.throughput is None else receipt.throughput.reported_by


def _list_figures(receipt: Receipt) -> list[str]:
    rates = receipt.throughput
    if rates is None or rates.reported_by is None:
        return []
    figures: list[str] = []
    steps = receipt.steps
    if steps is not None:
        warmup = f", {steps.warmup:,} of them warm-up" if steps.warmup else ""
        figures.append(f"{pluralize(steps.count, 'step')}{warmup}")
    if rates.steps_per_s:
        duration = format_seconds(1 / rates.steps_per_s)
        figures.append(f"{duration} a step ({_format_figure(rates.steps_per_s)}/s)")
    units = (
        (rates.samples_per_s, "samples/s"),
        (rates.tokens_per_s, "tokens/s"),
        (rates.tokens_per_s_per_device, "tokens/s a device"),
        (rates.tflops_per_s_per_device, "TFLOP/s a device"),
        (None if rates.mfu is None else 100 * rates.mfu, "% MFU"),
    )
    figures += [f"{_format_figure(value)} {unit}" for value, unit in units if value is not None]
    if receipt.checks.losses_finite is False:
        figures.append("loss was not finite")
    elif rates.loss is not None:
        figures.append(f"loss {_format_figure(rates.loss)}")
    return figures


def list_trainer_notes(receipt: Receipt) -> list[str]:
    """List what to know about the figures of a trainer's output."""
    notes = (text for text in receipt.completeness.reasons if text.startswith(_TRAINER_NOTE))
    return [text.removeprefix(_TRAINER_NOTE) for text in notes]


def _format_figure(value: float) -> str:
    return f"{value:,.0f}" if abs(value) >= MIN_WHOLE else f"{value:.3g}"
