"""Containers, objects and optional arguments that changed, and which of several objects was passed
(CD102, CD108, CD110, CD112 to CD115); what changed and no guard sees (CD119)."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

from msgspec.structs import replace

from compilediag.diagnosis.causes.group import Group
from compilediag.diagnosis.findings import Finding
from compilediag.receipt.schema.evidence import GuardEvidence
from compilediag.rules.absorption import compile_ids
from compilediag.rules.facts import is_held_by_package, is_of_hook
from compilediag.rules.make_finding import Advice, make_finding, pick
from compilediag.rules.recompiles import RecompileRule, Told
from compilediag.timeline.compiles import CompileId
from compilediag.timeline.timeline import Recompile, Timeline
from compilediag_harness.wire import UnguardedChanged, UserCall

KEPT_OUTSIDE = Advice(
    "keep {name} outside the compiled function: pass as tensors what {function} reads of it, and "
    "return what it puts into it; or fill it before the first compiled call",
    "filling it helps only where it then stays as it is",
)
DISABLED_HOOK = Advice(
    "put torch.compiler.disable on {function}",
    "costs a graph break per call site, and the loop that calls it runs eager",
)
SAME_STRUCTURE = Advice(
    "pass {name} with the same type, length and keys at every call; or warm up each that the timed "
    "steps have",
    "one graph for each",
)
KEYWORDS = Advice(
    "warm up calls with and without {keywords}; or pass a value of one type and shape at every "
    "call, a neutral one where it has no effect",
    "one graph per set of keywords",
)
OPTIONAL = Advice(
    "warm up calls with and without {name}; or pass a value of one type and shape at every call, a "
    "neutral one where it has no effect",
    "warming up keeps two graphs",
)
ONE_OBJECT = Advice(
    "make {name} once, outside the loop, and keep it; or warm up each that the timed steps use",
    "one graph for each",
)
ONE_BACKEND = Advice(
    "create the backend and its options once, at module level, and compile {function} once",
    "a functools.partial made per call does not help",
)
DISTINCT = Advice(
    "pass {inputs} always as distinct tensors: .clone() one of them",
    "a copy of the tensor per call",
)
HOOKS_BEFORE = Advice("register all hooks before the first compiled call, and keep them")
_MEMBER = re.compile(r"'(?P<key>\w+)' (?:absent|present)")
_COUNT = re.compile(r"(?P<count>\d{1,6}) keys?")


def _captured(group: Group) -> Told:
    return "closure container", DISABLED_HOOK if is_of_hook(group) else KEPT_OUTSIDE


def _argument(group: Group) -> Told:
    keyed = group.kind in ("members", "missing", "keys") or (
        group.kind == "length" and "key" in f"{group.first.expected}{group.first.actual}"
    )
    title = "container argument of another length"
    if is_held_by_package(group):
        title = "container of a package with other keys"
    elif keyed or group.kind == "type":
        title = f"container argument {'with other keys' if keyed else 'of another type'}"
    return title, SAME_STRUCTURE


def _object(group: Group) -> Told:
    titles = {"dead_object": "a guarded object died", "type": "argument of another type"}
    return titles.get(group.kind or "", "another function or class was passed"), ONE_OBJECT


def _backend(_: Group) -> Told:
    return "same code, another backend object", ONE_BACKEND


def _aliases(_: Group) -> Told:
    return "inputs alias differently", DISTINCT


def _optional(_: Group) -> Told:
    return "argument is None in some calls", OPTIONAL


def _hooks(_: Group) -> Told:
    return "number of hooks changed", HOOKS_BEFORE


def with_keywords(finding: Finding, _: Group, timeline: Timeline) -> Finding:
    """CD108 in the words of its keywords, where the calls show that the container is `**kwargs` and
    which keywords differ."""
    if finding.parts or finding.variable is None:
        return finding
    found: set[str] = set()
    for before, after in GuardEvidence.of(finding.evidence).values:
        named = set(_named(finding, timeline, before or "", after or ""))
        if not named:
            return finding
        found |= named
    if not found:
        return finding
    shown = ", ".join(f"`{keyword}`" for keyword in sorted(found))
    summary = KEYWORDS.fix.format(keywords=shown)
    fix = replace(finding.fix, summary=summary, caveat=KEYWORDS.caveat)
    return replace(finding, title=f"keyword argument passed in some calls: {shown}", fix=fix)


def _named(finding: Finding, timeline: Timeline, before: str, after: str) -> Iterator[str]:
    """The keywords of one change of the container: its own text names one, or the calls of the two
    compiles differ by as many as were counted."""
    calls = list(_calls(finding, timeline))
    member = _MEMBER.fullmatch(before) or _MEMBER.fullmatch(after)
    if member is not None:
        if any(_keywords(call, finding.variable) for pair in calls for call in pair):
            yield member["key"]
        return
    counts = [_COUNT.fullmatch(text) for text in (before, after)]
    for earlier, later in calls:
        sets = _keywords(earlier, finding.variable), _keywords(later, finding.variable)
        if [str(len(each)) for each in sets] == [found and found["count"] for found in counts]:
            yield from sets[0] ^ sets[1]
            return


def _calls(finding: Finding, timeline: Timeline) -> Iterator[tuple[UserCall, UserCall]]:
    """The calls that compiled an entry that did not fit, and that compiled again."""
    ids = compile_ids(finding)
    compiles = {item.id: item for item in timeline.compiles}
    for recompile in timeline.recompiles:
        if recompile.compile_id in ids and recompile.entered_at is not None:
            for entry in recompile.entries:
                missed = compiles.get(_id_of(recompile, entry.compile_id))
                if missed is not None and missed.entered_at is not None:
                    yield missed.entered_at, recompile.entered_at


def _id_of(recompile: Recompile, compile_id: str) -> CompileId:
    return CompileId(recompile.process, recompile.epoch, compile_id)


def _keywords(call: UserCall, variable: str | None) -> set[str]:
    """What a call passes by name into `**variable`."""
    opening = f"{variable}['"
    return {
        parameter.removeprefix(opening).removesuffix("']")
        for parameter, _ in call.arguments
        if parameter.startswith(opening)
    }


_NOUNS = {
    "forward_hook": "forward hook",
    "forward_pre_hook": "forward pre-hook",
    "class_method": "method of the class",
    "instance_method": "method of the instance",
}


def unguarded_change(timeline: Timeline) -> Iterable[Finding]:
    """CD119: what changed after the compile is ignored, and nothing recompiles."""
    found: dict[tuple[str, str], list[UnguardedChanged]] = {}
    for change in timeline.unguarded:
        found.setdefault((change.what, change.target), []).append(change)
    for (what, target), changes in found.items():
        action = "register it" if "hook" in what else "replace it"
        yield make_finding(
            timeline,
            "CD119",
            f"{_NOUNS.get(what, what.replace('_', ' '))} changed after compile and is ignored",
            f"{action} before the first compiled call, or call torch._dynamo.reset() after it",
            caveat="reset() compiles everything again",
            variable=target,
            location=next((change.where for change in changes if change.where), changes[0].frame),
            count=len(changes),
            steps=(change.step for change in changes),
            evidence={
                "kind": what,
                "target": target,
                "frames": [
                    pick(frame, "function", "file", "line")
                    for frame in dict.fromkeys(change.frame for change in changes)
                ],
            },
        )


RULES = (
    RecompileRule("CD102", _captured),
    RecompileRule("CD108", _argument, with_keywords),
    RecompileRule("CD110", _object),
    RecompileRule("CD112", _backend),
    RecompileRule("CD113", _aliases),
    RecompileRule("CD114", _optional),
    RecompileRule("CD115", _hooks),
)
