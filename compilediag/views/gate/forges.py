"""Formats of a gate for forges: for GitHub an annotation on each line to blame, the most important
first; for GitLab a code quality report; for both JUnit XML; SARIF 2.1.0 for code scanning.

GitHub shows 10 annotations of a type for a step and drops the others without a word.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from html import escape

from compilediag import project_urls
from compilediag._version import __version__
from compilediag.compare.gate.judgement import Issue, Judgement, Kind
from compilediag.diagnosis.codes import REGISTER
from compilediag.views.format import pluralize
from compilediag.views.gate.messages import (
    UPDATE,
    add_fingerprints,
    describe_outcome,
    describe_standard,
    escape_commands,
    find_location,
    format_change,
    format_short,
    format_title,
    get_baseline_line,
    get_outcome,
    list_details,
    merge_in_turn,
)
from compilediag.views.style import RenderOptions

_GATE = "compilediag gate"
MAX_ERRORS = 9
MAX_NOTICES = 9
TITLE_CHARS = 200
TEXT_CHARS = 500
"""Longest message, guard, fix or proof: an annotation's message may have 64 KiB."""


def render_annotations(judgements: Sequence[Judgement], options: RenderOptions) -> str:
    """Render at most nine errors and ten notices, over all configurations."""
    failures = merge_in_turn(judgements)
    lines: list[str] = []
    for judgement, issue in failures[:MAX_ERRORS]:
        parts = [
            *list_details(issue, options, TEXT_CHARS),
            f"configuration: {options.clean(judgement.configuration, 200)}",
        ]
        target = find_location(issue, options)
        place = {} if target is None else {"file": target.path, "line": str(target.line)}
        name = options.clean(format_title(issue), TITLE_CHARS)
        lines.append(_format_command("error", name, "\n".join(parts), place))
    notices: list[str] = []
    if len(failures) > MAX_ERRORS:
        left = pluralize(len(failures) - MAX_ERRORS, "more failure")
        notices.append(_format_command("notice", _GATE, f"{left}: see the job summary or the log"))
    for judgement in judgements:
        # That a configuration passed, that it is better, and its notices.
        label = f"configuration {options.clean(judgement.configuration, 200)}"
        better = judgement.improvements
        notes: list[tuple[str, str]] = []
        if better:
            texts = [options.clean(improvement.message, 200) for improvement in better[:9]]
            texts += [f"and {len(better) - 9:,} more"] if len(better) > 9 else []
            name = describe_outcome(judgement)
            if judgement.failures:
                name = f"compilediag gate: {pluralize(len(better), 'improvement')}"
            notes.append((name, "\n".join([label, *texts, f"keep it: {UPDATE}"])))
        elif get_outcome(judgement) == "good":
            standard = options.clean(describe_standard(judgement), 300)
            text = f"{label} against {standard}" if standard else label
            notes.append((describe_outcome(judgement), text))
        notes += [(_GATE, f"{label}: {options.clean(text)}") for text in judgement.notices]
        # A gate that only fails for being better has no failure to show: its verdict is the error.
        kind = "notice" if judgement.passed or judgement.failures else "error"
        notices += [
            _format_command("notice" if index else kind, options.clean(name, TITLE_CHARS), text)
            for index, (name, text) in enumerate(notes)
        ]
    if len(notices) > MAX_NOTICES:
        left = pluralize(len(notices) - MAX_NOTICES, "more notice")
        notices[MAX_NOTICES:] = [_format_command("notice", _GATE, f"{left}: see the log")]
    if not judgements:
        lines.append(_format_command("error", _GATE, "nothing was judged, which is no pass"))
    return "\n".join([*lines, *notices]) + "\n"


def _format_command(kind: str, name: str, message: str, place: dict[str, str] | None = None) -> str:
    """Format one workflow command; its texts cannot end it, nor start another."""

    def escape_data(text: str) -> str:
        return text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")

    fields = {**(place or {}), "title": name}
    properties = (
        f"{key}={escape_data(value).replace(':', '%3A').replace(',', '%2C')}"
        for key, value in fields.items()
    )
    return f"::{kind} {','.join(properties)}::{escape_data(message)}"


# --- GitLab --------------------------------------------------------------------------------------

DESCRIPTION_CHARS = 500
MAX_BYTES = 10_000_000
"""More would have no reader; a configuration hardly ever has a hundred entries of 500 bytes."""

_SEVERITY: dict[Kind, str] = {"not_judged": "blocker", "fallback": "critical"}
"""All else is major: a gate fails for it."""


def render_code_quality(judgements: Sequence[Judgement], options: RenderOptions) -> str:
    """Render the report. What passed has no entry: the widget compares with the target branch."""
    entries: list[str] = []
    room = MAX_BYTES
    for judgement, issue, digest in add_fingerprints(merge_in_turn(judgements)):
        target = find_location(issue, options) or get_baseline_line(judgement, options)
        parts = [f"{format_title(issue)}: {issue.message}"]
        parts += [f"({format_change(issue)})"] if format_change(issue) else []
        parts += [f"Fix: {issue.fix}"] if issue.fix else []
        parts += [f"Proved: {issue.proved}"] if issue.proved else []
        fields = {
            "description": options.clean(" ".join(parts), DESCRIPTION_CHARS),
            "check_name": options.clean(f"compilediag/{issue.rule}", 100),
            "fingerprint": digest,
            "severity": _SEVERITY.get(issue.kind, "major"),
            "location": {"path": target.path, "lines": {"begin": target.line}},
        }
        entry = json.dumps(fields, indent=1)
        room -= len(entry)
        if room < 0:
            break
        entries.append(entry)
    return "[\n" + ",\n".join(entries) + "\n]\n" if entries else "[]\n"


# --- JUnit ---------------------------------------------------------------------------------------

MAX_CHARS = 4_000_000
"""Of all texts together: GitLab reads no file over 30 MB, and a character has up to 4 bytes."""
MAX_CONFIGURATIONS = 1000
JUNIT_CHARS = 400
_ELEMENT = {"bad": "failure", "blind": "error"}


def render_junit(judgements: Sequence[Judgement], options: RenderOptions) -> str:
    """Render one suite with a test case for each configuration, which has one failure that lists
    everything, or an error. What is escaped holds no character that XML 1.0 forbids."""
    shown = judgements[:MAX_CONFIGURATIONS]
    kinds = [get_outcome(judgement) for judgement in shown] or ["blind"]
    counts = f'tests="{len(kinds)}" failures="{kinds.count("bad")}" errors="{kinds.count("blind")}"'
    room = MAX_CHARS // max(len(shown), 1) * 4 // 5
    lines = [
        '<?xml version="1.0" encoding="UTF-8"?>',
        f'<testsuites name="compilediag gate" {counts}>',
        f'<testsuite name="compilediag gate" {counts}>',
    ]
    for judgement, kind in zip(shown, kinds, strict=False):
        name = escape(options.clean(judgement.configuration, 300))
        lines.append(f'<testcase classname="compilediag.gate" name="{name}">')
        element = _ELEMENT.get(kind)
        if element is not None:
            message = escape(options.clean(describe_outcome(judgement), 300))
            attributes = f'message="{message}" type="compilediag.gate"'
            failures = _render_failures(judgement, options, room)
            lines.append(f"<{element} {attributes}>{failures}</{element}>")
        rest = _render_rest(judgement, options, room // 4)
        lines += [f"<system-out>{rest}</system-out>", "</testcase>"]
    if not shown:
        lines.append('<testcase classname="compilediag.gate" name="no configuration">')
        lines += ['<error message="nothing was judged, which is no pass"/>', "</testcase>"]
    return "\n".join([*lines, "</testsuite>\n</testsuites>\n"])


def _render_failures(judgement: Judgement, options: RenderOptions, room: int) -> str:
    """Render every failure of the configuration, as long as there is room."""
    parts: list[str] = []
    for number, issue in enumerate(judgement.failures, 1):
        lines = [
            f"{number}. {options.clean(format_title(issue), 200)}",
            *list_details(issue, options, JUNIT_CHARS),
        ]
        text = escape("\n   ".join(escape_commands(line) for line in lines))
        room -= len(text)
        if room < 0:
            more = len(judgement.failures) - number + 1
            parts.append(f"{more:,} more: compilediag gate --format json")
            break
        parts.append(text)
    if judgement.strict:
        texts = (options.clean(gain.message, JUNIT_CHARS) for gain in judgement.improvements[:50])
        better = [f"better: {escape(text)}" for text in texts]
        parts += better if sum(map(len, better)) <= room else []
        parts += [f"a strict gate fails until the baseline holds it: {UPDATE}"]
    return "\n".join(parts)


def _render_rest(judgement: Judgement, options: RenderOptions, room: int) -> str:
    """Render what does not fail: what it was judged against, what is known, better, a notice."""
    parts = [f"{describe_outcome(judgement)}; against {describe_standard(judgement) or 'nothing'}"]
    parts += [f"known: {format_short(known)}" for known in judgement.known[:50]]
    parts += [f"better: {improvement.message}" for improvement in judgement.improvements[:50]]
    parts += [f"notice: {text}" for text in judgement.notices[:50]]
    lines: list[str] = []
    for text in parts:
        line = escape(escape_commands(options.clean(text, JUNIT_CHARS)))
        room -= len(line)
        if room < 0:
            return "\n".join([*lines, "more: compilediag gate --format json"])
        lines.append(line)
    return "\n".join(lines)


# --- SARIF ---------------------------------------------------------------------------------------

MAX_RESULTS = 25_000
"""Of a run; more and the file is refused."""
RESULT_BYTES = 9_000_000
"""Of results and rules as text: the file may have 10 MB after compression, which adds nothing."""
MAX_NOTIFICATIONS = 100
MAX_PARTS = 20
"""Other causes of the same finding named in its result."""

SCHEMA = (
    "https://docs.oasis-open.org/sarif/sarif/v2.1.0/errata01/os/schemas/sarif-schema-2.1.0.json"
)
_IN_PATHS = frozenset(b"abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-._~/")


def render_sarif(judgements: Sequence[Judgement], options: RenderOptions) -> str:
    """Render the log: one run for all configurations, since code scanning takes only one run of a
    tool and category from a file. Improvements are no results, and a run that could not be judged
    is unsuccessful.

    Causes of one finding are one result, that of the first, which names the others; the same cause
    twice is no part of itself.
    """
    failures: list[tuple[Judgement, Issue]] = []
    first: dict[tuple[str, str | None], Issue] = {}
    parts: dict[tuple[str, str | None], list[Issue]] = {}
    for judgement, issue in merge_in_turn(judgements):
        key = judgement.configuration, issue.finding
        if issue.kind == "cause" and issue.finding is not None:
            root = first.setdefault(key, issue)
            if root.fingerprint != issue.fingerprint:
                parts.setdefault(key, []).append(issue)
                continue
        failures.append((judgement, issue))
    rules: dict[str, int] = {}
    results: list[str] = []
    room = RESULT_BYTES
    for judgement, issue, digest in add_fingerprints(failures[:MAX_RESULTS]):
        rule = options.clean(issue.rule, 60) or issue.kind
        named = {"ruleId": rule, "ruleIndex": rules.get(rule, len(rules))}
        others = parts.get((judgement.configuration, issue.finding), ())[:MAX_PARTS]
        result = _dump({**named, **_build_result(judgement, issue, digest, options, others)})
        room -= len(result) + (0 if rule in rules else len(_dump(_build_rule(rule))))
        if room < 0:
            break
        rules.setdefault(rule, len(rules))
        results.append(result)
    address = project_urls.REPOSITORY
    driver = {
        "name": "compilediag",
        "version": __version__,
        **({} if address is None else {"informationUri": address}),
        "rules": [_build_rule(name) for name in rules],
    }
    run = {
        "results": [],
        "tool": {"driver": driver},
        "automationDetails": {"id": "compilediag/gate/"},
        "invocations": [_build_invocation(judgements, len(failures) - len(results), options)],
    }
    # Results are dumped one by one to know their size; this puts them where they belong.
    # Invariant: "results" is the first key of `run`, so that the first match is this one.
    body = _dump(run).replace('"results":[]', '"results":[\n' + ",\n".join(results) + "\n]", 1)
    return f'{{"$schema":{_dump(SCHEMA)},"version":"2.1.0","runs":[{body}]}}\n'


def _dump(value: object) -> str:
    return json.dumps(value, separators=(",", ":"))


def _build_rule(name: str) -> dict[str, object]:
    known = REGISTER.get(name)
    if known is None:
        sentence = f"{name.replace('_', ' ')}: more than the baseline or the limit allows"
        page, more = None, "compilediag gate --help"
    else:
        sentence = known.sentence
        page, more = project_urls.get_rule_url(known.code), f"compilediag explain {known.code}"
    return {
        "id": name,
        **({} if known is None else {"name": known.slug}),
        "shortDescription": {"text": sentence},
        "fullDescription": {"text": sentence},
        "help": {"text": f"{sentence}. {more}" + (f", {page}" if page else "")},
        **({} if page is None else {"helpUri": page}),
        "defaultConfiguration": {"level": "error"},
    }


def _build_result(
    judgement: Judgement, issue: Issue, digest: str, options: RenderOptions, others: Sequence[Issue]
) -> dict[str, object]:
    parts = [options.clean(format_title(issue), 200), *list_details(issue, options, TEXT_CHARS)]
    related: list[dict[str, object]] = []
    for other in others:
        named = options.clean(format_title(other), 200)
        parts.append(f"with: {named}")
        related.append({**_build_place(judgement, other, options), "message": _make_message(named)})
    return {
        "level": "error",
        "message": _make_message("\n".join(parts)),
        "locations": [_build_place(judgement, issue, options)],
        **({"relatedLocations": related} if related else {}),
        # Code scanning reads the first alone, and would count lines of the file without it.
        "partialFingerprints": {"primaryLocationLineHash": f"{digest}:1", "cause/v1": digest},
        "properties": {"lane": options.clean(judgement.configuration, 200), "kind": issue.kind},
    }


def _build_place(judgement: Judgement, issue: Issue, options: RenderOptions) -> dict[str, object]:
    target = find_location(issue, options) or get_baseline_line(judgement, options)
    # A colon in a relative path would read as the end of a URI's scheme.
    path = target.path.encode("utf-8")
    uri = "".join(chr(byte) if byte in _IN_PATHS else f"%{byte:02X}" for byte in path)
    artifact = {"uri": uri, "uriBaseId": "%SRCROOT%"}
    physical = {"artifactLocation": artifact, "region": {"startLine": target.line}}
    function = issue.function if issue.call is None else issue.call.function
    if not function:
        return {"physicalLocation": physical}
    logical = {"fullyQualifiedName": options.clean(function, 200), "kind": "function"}
    return {"physicalLocation": physical, "logicalLocations": [logical]}


def _build_invocation(
    judgements: Sequence[Judgement], left: int, options: RenderOptions
) -> dict[str, object]:
    """Build the invocation: whether everything could be judged, and the gate's own notices."""
    parts: list[tuple[str, str]] = []
    if not judgements:
        parts.append(("error", "nothing was judged, which is no pass"))
    if left:
        parts.append(("warning", f"{left} more failures: compilediag gate --format json"))
    for judgement in judgements:
        label = f"configuration {options.clean(judgement.configuration, 200)}"
        parts += [
            ("error", f"{label}: {options.clean(issue.message, TEXT_CHARS)}")
            for issue in judgement.failures
            if issue.kind == "not_judged"
        ]
        parts += [("note", f"{label}: {options.clean(text)}") for text in judgement.notices]
        for gain in judgement.improvements:
            better = options.clean(f"{format_short(gain)}: {gain.message}", TEXT_CHARS)
            parts.append(("note", f"{label}: better: {better}"))
    return {
        "executionSuccessful": bool(judgements)
        and all(judgement.judged for judgement in judgements),
        "toolExecutionNotifications": [
            {"level": level, "message": _make_message(text)}
            for level, text in parts[:MAX_NOTIFICATIONS]
        ],
    }


def _make_message(text: str) -> dict[str, str]:
    """Build a message in which no text of the target becomes a link: `[text](address)` is one."""
    return {"text": text.replace("](", "] (")}
