"""SARIF 2.1.0 for code scanning: every failure as a result, most important first.

One run for all lanes: code scanning takes only one run of a tool and category from a file.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence

from compilediag._version import __version__
from compilediag.compare.gate.judgement import Item, Judgement
from compilediag.diagnosis.codes import REGISTER
from compilediag.project_urls import repository, rule_page
from compilediag.views.gate.messages import (
    detail,
    fingerprinted,
    home,
    in_turn,
    location,
    short,
    title,
)
from compilediag.views.style import RenderOptions

MAX_RESULTS = 25_000
"""Of a run; more and the file is refused."""
MAX_BYTES = 9_000_000
"""Of results and rules as text: the file may have 10 MB after compression, which adds nothing."""
MAX_NOTIFICATIONS = 100
MAX_PARTS = 20
"""Other causes of the same finding named in its result."""
TEXT_CHARS = 500

SCHEMA = (
    "https://docs.oasis-open.org/sarif/sarif/v2.1.0/errata01/os/schemas/sarif-schema-2.1.0.json"
)
_IN_PATHS = frozenset(b"abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-._~/")


def render(judgements: Sequence[Judgement], options: RenderOptions) -> str:
    """The log. Improvements are no results, and a run that could not be judged is unsuccessful."""
    failures, parts = _with_parts(in_turn(judgements))
    rules: dict[str, int] = {}
    results: list[str] = []
    room = MAX_BYTES
    for judgement, item, digest in fingerprinted(failures[:MAX_RESULTS]):
        rule = options.text(item.rule, 60) or item.kind
        place = rules.get(rule, len(rules))
        others = parts.get((judgement.lane, item.finding), ())
        result = _dump(_result(judgement, item, (rule, place), digest, options, others))
        room -= len(result) + (0 if rule in rules else len(_dump(_rule(rule))))
        if room < 0:
            break
        rules.setdefault(rule, place)
        results.append(result)
    run = _dump(_run(judgements, rules, len(failures) - len(results), options))
    # Results are dumped one by one to know their size; this puts them where they belong.
    body = run.replace('"results":[]', '"results":[\n' + ",\n".join(results) + "\n]", 1)
    return f'{{"$schema":{_dump(SCHEMA)},"version":"2.1.0","runs":[{body}]}}\n'


_Parts = dict[tuple[str, str | None], list[Item]]
"""By lane and finding."""


def _with_parts(
    failures: Iterable[tuple[Judgement, Item]],
) -> tuple[list[tuple[Judgement, Item]], _Parts]:
    """Causes of one finding as one result, that of the first; with the others. The same cause twice
    is no part of itself."""
    shown: list[tuple[Judgement, Item]] = []
    first: dict[tuple[str, str | None], Item] = {}
    parts: _Parts = {}
    for judgement, item in failures:
        key = judgement.lane, item.finding
        if item.kind == "cause" and item.finding is not None:
            root = first.setdefault(key, item)
            if root.fingerprint != item.fingerprint:
                parts.setdefault(key, []).append(item)
                continue
        shown.append((judgement, item))
    return shown, parts


def _dump(value: object) -> str:
    return json.dumps(value, separators=(",", ":"))


def _run(
    judgements: Sequence[Judgement], rules: dict[str, int], left: int, options: RenderOptions
) -> dict[str, object]:
    driver = {
        "name": "compilediag",
        "version": __version__,
        **({} if repository() is None else {"informationUri": repository()}),
        "rules": [_rule(name) for name in rules],
    }
    return {
        "results": [],
        "tool": {"driver": driver},
        "automationDetails": {"id": "compilediag/gate/"},
        "invocations": [_invocation(judgements, left, options)],
    }


def _rule(name: str) -> dict[str, object]:
    known = REGISTER.get(name)
    if known is None:
        sentence = f"{name.replace('_', ' ')}: more than the baseline or the limit allows"
        page, more = None, "compilediag gate --help"
    else:
        sentence = known.sentence
        page, more = rule_page(known.code), f"compilediag explain {known.code}"
    rule: dict[str, object] = {"id": name} if known is None else {"id": name, "name": known.slug}
    return {
        **rule,
        "shortDescription": {"text": sentence},
        "fullDescription": {"text": sentence},
        "help": {"text": f"{sentence}. {more}" + (f", {page}" if page else "")},
        **({} if page is None else {"helpUri": page}),
        "defaultConfiguration": {"level": "error"},
    }


def _result(
    judgement: Judgement,
    item: Item,
    rule: tuple[str, int],
    digest: str,
    options: RenderOptions,
    others: Sequence[Item],
) -> dict[str, object]:
    parts = [options.text(title(item), 200), *detail(item, options, TEXT_CHARS)]
    parts += [f"with: {options.text(title(other), 200)}" for other in others[:MAX_PARTS]]
    related = [_place(judgement, other, options) for other in others[:MAX_PARTS]]
    for place, other in zip(related, others, strict=False):
        place["message"] = _message(options.text(title(other), 200))
    return {
        "ruleId": rule[0],
        "ruleIndex": rule[1],
        "level": "error",
        "message": _message("\n".join(parts)),
        "locations": [_place(judgement, item, options)],
        **({"relatedLocations": related} if related else {}),
        # Code scanning reads the first alone, and would count lines of the file without it.
        "partialFingerprints": {"primaryLocationLineHash": f"{digest}:1", "cause/v1": digest},
        "properties": {"lane": options.text(judgement.lane, 200), "kind": item.kind},
    }


def _place(judgement: Judgement, item: Item, options: RenderOptions) -> dict[str, object]:
    found = location(item, options) or home(judgement, options)
    artifact = {"uri": _uri(found.path), "uriBaseId": "%SRCROOT%"}
    physical = {"artifactLocation": artifact, "region": {"startLine": found.line}}
    place: dict[str, object] = {"physicalLocation": physical}
    function = item.function if item.call is None else item.call.function
    if function:
        name = options.text(function, 200)
        place["logicalLocations"] = [{"fullyQualifiedName": name, "kind": "function"}]
    return place


def _invocation(
    judgements: Sequence[Judgement], left: int, options: RenderOptions
) -> dict[str, object]:
    """Whether everything could be judged, and the notices of the gate itself."""
    parts: list[tuple[str, str]] = []
    if not judgements:
        parts.append(("error", "nothing was judged, which is no pass"))
    if left:
        parts.append(("warning", f"{left} more failures: compilediag gate --format json"))
    for judgement in judgements:
        lane = options.text(judgement.lane, 200)
        parts += [
            ("error", f"lane {lane}: {options.text(item.message, TEXT_CHARS)}")
            for item in judgement.failures
            if item.kind == "not_judged"
        ]
        parts += [("note", f"lane {lane}: {options.text(text)}") for text in judgement.notices]
        for item in judgement.improvements:
            better = options.text(f"{short(item)}: {item.message}", TEXT_CHARS)
            parts.append(("note", f"lane {lane}: better: {better}"))
    return {
        "executionSuccessful": bool(judgements) and all(item.judged for item in judgements),
        "toolExecutionNotifications": [
            {"level": level, "message": _message(text)} for level, text in parts[:MAX_NOTIFICATIONS]
        ],
    }


def _message(text: str) -> dict[str, str]:
    """A message in which no text of the target becomes a link: `[text](address)` is one."""
    return {"text": text.replace("](", "] (")}


def _uri(path: str) -> str:
    """A relative path as a URI reference; a colon in it would read as the end of a scheme."""
    return "".join(
        chr(byte) if byte in _IN_PATHS else f"%{byte:02X}" for byte in path.encode("utf-8")
    )
