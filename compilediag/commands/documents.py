"""Promises of commands to programs: every document that one prints with `--json` (its schema, its
type, the commands that print it), and every exit code."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from compilediag import extension_points
from compilediag.errors import (
    EXIT_BROKEN_PIPE,
    EXIT_GATE,
    EXIT_INTERNAL,
    EXIT_INTERRUPTED,
    EXIT_OK,
    EXIT_UNDECIDED,
    EXIT_UNUSABLE,
    EXIT_USAGE,
)


class DeclaredDocument(NamedTuple):
    """A document: its schema, its type, and the commands that print it."""

    name: str
    """Of the schema."""
    type: str
    """Module and class."""
    printed_by: str


_HOMES = (
    (
        "receipt",
        "receipt.schema.receipt:Receipt",
        "run, measure against-eager, measure cold-and-warm, measure periodic, analyze, show",
    ),
    ("fix", "runs.fix.results:FixDocument", "fix"),
    ("fix-plan", "runs.fix.results:FixPlanDocument", "fix --dry-run"),
    ("certificate", "views.certificate:CertificateDocument", "certify"),
    ("rule", "views.finding:RuleDocument", "explain CODE"),
    ("rules", "views.finding:RulesDocument", "explain --list"),
    ("finding", "views.finding:FindingDocument", "explain N"),
    ("repro", None, "repro"),
    ("diff", "compare.diff:DiffDocument", "diff"),
    ("judgement", "views.gate:JudgementDocument", "gate"),
    ("stats", None, "history stats"),
    ("trend", None, "history trend"),
    ("plan", "rules.bucket_plan:PlanDocument", "plan"),
    ("doctor", "commands.doctor:DoctorDocument", "doctor"),
)
"""Without a home: of an extension."""

DOCUMENTS = tuple(
    DeclaredDocument(
        f"compilediag.{name}",
        f"compilediag.{home or 'extensions.' + extension_points.DOCUMENTS[f'compilediag.{name}']}",
        printed_by,
    )
    for name, home, printed_by in _HOMES
)

COMMON_EXIT_CODES: Mapping[int, str] = {
    EXIT_USAGE: "the command line or an input cannot be used as given; stderr has one sentence",
    EXIT_INTERNAL: "a fault of compilediag's own; stderr has what to report",
    EXIT_INTERRUPTED: "Ctrl-C",
    EXIT_BROKEN_PIPE: "the reader of stdout went away",
}

_DONE = {EXIT_OK: "done, whatever was found"}

EXIT_CODES_BY_COMMAND: Mapping[str, Mapping[int, str]] = {
    "run": {
        EXIT_OK: "the program ended well, and no limit of `--fail-on` is exceeded",
        EXIT_GATE: "the program ended well, and a limit of `--fail-on` is exceeded",
    },
    "measure against-eager": {EXIT_OK: "the program ended well, and something was concluded"},
    "measure cold-and-warm": {EXIT_OK: "the program ended well"},
    "measure periodic": {EXIT_OK: "the program ended well, and the probe could conclude"},
    "analyze": _DONE,
    "show": _DONE,
    "fix": {
        EXIT_OK: "every finding of at least `warning` has a proved change",
        EXIT_GATE: "a finding of at least `warning` has none",
    },
    "certify": {
        EXIT_OK: "the change is proved",
        EXIT_GATE: "it is refused: something is worse, or a result is another one",
        EXIT_UNDECIDED: "not decided; the reason says what is missing",
    },
    "explain": _DONE,
    "repro": _DONE,
    "diff": {EXIT_OK: "compared, whether or not something changed"},
    "gate": {
        EXIT_OK: "everything was judged and passes",
        EXIT_GATE: "something fails",
    },
    "history stats": _DONE,
    "history trend": _DONE,
    "plan": _DONE,
    "mcp": {EXIT_OK: "the client closed stdin"},
    "doctor": {
        EXIT_OK: "`compilediag run` can be used here",
        EXIT_UNUSABLE: "it cannot",
    },
}
"""Beside `COMMON_EXIT_CODES`. `run`, `measure` and `fix` give that of a program that fails."""
