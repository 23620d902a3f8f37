"""Losses that last: what runs eager or in pieces in every call, and a limit that will be hit.

They come before any cost: a recompile is over once it is compiled, and these are not.
"""

from __future__ import annotations

from compilediag.diagnosis.codes import EAGER
from compilediag.receipt.finding_keys import normalize_function
from compilediag.receipt.schema.compiles import FindingRecord, FrameDetail, mask_indices
from compilediag.receipt.schema.evidence import GuardEvidence
from compilediag.receipt.schema.receipt import Receipt
from compilediag.views.format import pluralize

MAX_NAMED = 2
_PACE = 3
"""Recompiles that a pace is taken from."""


def list_losses(receipt: Receipt) -> list[str]:
    """List what stays broken, a sentence each, the worst first; empty where nothing does."""
    findings = [finding for finding in receipt.findings if finding.severity != "info"]
    at_limit = [finding for finding in findings if finding.rule == "CD152"]
    eager = [finding for finding in findings if finding.rule in EAGER - {"CD152"}]
    losses: list[str] = []
    for found, sentence in ((at_limit, _describe_limit), (eager, _describe_eager)):
        if found:
            more = f" (and {pluralize(len(found) - 1, 'more frame')})" if found[1:] else ""
            losses.append(sentence(found[0], receipt) + more)
    noted = {finding.id for finding in receipt.findings if finding.severity == "info"}
    sites = [site for site in receipt.compile.breaks if site.finding not in noted]
    count = receipt.compile.graph_breaks - len(receipt.compile.breaks) + len(sites)
    if count > 0:
        functions = [*dict.fromkeys(normalize_function(site.function) for site in sites)]
        more = [f"{len(functions) - MAX_NAMED} more"] if len(functions) > MAX_NAMED else []
        named = ", ".join([*functions[:MAX_NAMED], *more]) or "what is compiled"
        losses.append(f"{pluralize(count, 'graph break')} in every call of {named}")
    return losses + ([] if at_limit else _list_forecasts(receipt))


def _describe_limit(finding: FindingRecord, receipt: Receipt) -> str:
    """Describe since when a frame is compiled no more, of how many steps, and what that means."""
    title = finding.title or finding.slug
    limit, place = GuardEvidence.parse(finding.evidence).limit, finding.location
    if place is None or not finding.steps or "eager" not in title:
        return title
    steps = receipt.steps
    of_all = f" of {steps.count:,}" if steps is not None and steps.count else ""
    return (
        f"{place.function} stopped being compiled at step {finding.steps[0]}{of_all} (recompile "
        f"limit {limit}): since then every call that fits none of its graphs runs eager"
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
                f"at this pace {frame.frame.function} reaches the recompile limit "
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
    return steps[-1], (steps[-1] - steps[0]) / (_PACE - 1)
