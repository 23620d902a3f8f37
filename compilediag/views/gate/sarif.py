"""SARIF 2.1.0 for code scanning: every failure as a result, most important first.

One run for all lanes: code scanning takes only one run of a tool and category from a file.
"""

from __future__ import annotations

import json
from collections.abc import Sequence

from compilediag import project_urls
from compilediag._version import __version__
from compilediag.compare.gate.judgement import Item, Judgement
from compilediag.diagnosis.codes import REGISTER
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
    """The log. Improvements are no results, and a run that could not be judged is unsuccessful.

    Causes of one finding are one result, that of the first, which names the others; the same cause
    twice is no part of itself.
    """
    failures: list[tuple[Judgement, Item]] = []
    first: dict[tuple[str, str | None], Item] = {}
    parts: dict[tuple[str, str | None], list[Item]] = {}
    for judgement, item in in_turn(judgements):
        key = judgement.lane, item.finding
        if item.kind == "cause" and item.finding is not None:
            root = first.setdefault(key, item)
            if root.fingerprint != item.fingerprint:
                parts.setdefault(key, []).append(item)
                continue
        failures.append((judgement, item))
    rules: dict[str, int] = {}
    results: list[str] = []
    room = MAX_BYTES
    for judgement, item, digest in fingerprinted(failures[:MAX_RESULTS]):
        rule = options.text(item.rule, 60) or item.kind
        named = {"ruleId": rule, "ruleIndex": rules.get(rule, len(rules))}
        others = parts.get((judgement.lane, item.finding), ())[:MAX_PARTS]
        result = _dump({**named, **_result(judgement, item, digest, options, others)})
        room -= len(result) + (0 if rule in rules else len(_dump(_rule(rule))))
        if room < 0:
            break
        rules.setdefault(rule, len(rules))
        results.append(result)
    address = project_urls.REPOSITORY
    driver = {
        "name": "compilediag",
        "version": __version__,
        **({} if address is None else {"informationUri": address}),
        "rules": [_rule(name) for name in rules],
    }
    run = {
        "results": [],
        "tool": {"driver": driver},
        "automationDetails": {"id": "compilediag/gate/"},
        "invocations": [_invocation(judgements, len(failures) - len(results), options)],
    }
    # Results are dumped one by one to know their size; this puts them where they belong.
    body = _dump(run).replace('"results":[]', '"results":[\n' + ",\n".join(results) + "\n]", 1)
    return f'{{"$schema":{_dump(SCHEMA)},"version":"2.1.0","runs":[{body}]}}\n'


def _dump(value: object) -> str:
    return json.dumps(value, separators=(",", ":"))


def _rule(name: str) -> dict[str, object]:
    known = REGISTER.get(name)
    if known is None:
        sentence = f"{name.replace('_', ' ')}: more than the baseline or the limit allows"
        page, more = None, "compilediag gate --help"
    else:
        sentence = known.sentence
        page, more = project_urls.rule_page(known.code), f"compilediag explain {known.code}"
    return {
        "id": name,
        **({} if known is None else {"name": known.slug}),
        "shortDescription": {"text": sentence},
        "fullDescription": {"text": sentence},
        "help": {"text": f"{sentence}. {more}" + (f", {page}" if page else "")},
        **({} if page is None else {"helpUri": page}),
        "defaultConfiguration": {"level": "error"},
    }


def _result(
    judgement: Judgement, item: Item, digest: str, options: RenderOptions, others: Sequence[Item]
) -> dict[str, object]:
    parts = [options.text(title(item), 200), *detail(item, options, TEXT_CHARS)]
    related: list[dict[str, object]] = []
    for other in others:
        named = options.text(title(other), 200)
        parts.append(f"with: {named}")
        related.append({**_place(judgement, other, options), "message": _message(named)})
    return {
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
    # A colon in a relative path would read as the end of a URI's scheme.
    path = found.path.encode("utf-8")
    uri = "".join(chr(byte) if byte in _IN_PATHS else f"%{byte:02X}" for byte in path)
    artifact = {"uri": uri, "uriBaseId": "%SRCROOT%"}
    physical = {"artifactLocation": artifact, "region": {"startLine": found.line}}
    function = item.function if item.call is None else item.call.function
    if not function:
        return {"physicalLocation": physical}
    logical = {"fullyQualifiedName": options.text(function, 200), "kind": "function"}
    return {"physicalLocation": physical, "logicalLocations": [logical]}


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
        lane = f"lane {options.text(judgement.lane, 200)}"
        parts += [
            ("error", f"{lane}: {options.text(item.message, TEXT_CHARS)}")
            for item in judgement.failures
            if item.kind == "not_judged"
        ]
        parts += [("note", f"{lane}: {options.text(text)}") for text in judgement.notices]
        for item in judgement.improvements:
            better = options.text(f"{short(item)}: {item.message}", TEXT_CHARS)
            parts.append(("note", f"{lane}: better: {better}"))
    return {
        "executionSuccessful": bool(judgements) and all(item.judged for item in judgements),
        "toolExecutionNotifications": [
            {"level": level, "message": _message(text)} for level, text in parts[:MAX_NOTIFICATIONS]
        ],
    }


def _message(text: str) -> dict[str, str]:
    """A message in which no text of the target becomes a link: `[text](address)` is one."""
    return {"text": text.replace("](", "] (")}
