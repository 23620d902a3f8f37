"""Every document that a command prints with `--json`: its schema, its type, who prints it."""

from __future__ import annotations

from typing import NamedTuple

from compilediag import extension_points


class Declared(NamedTuple):
    """Where a document is declared, and who prints it."""

    name: str
    """Of the schema."""
    type: str
    """Module and class."""
    printed_by: str


def _of_extension(name: str, printed_by: str) -> Declared:
    return Declared(
        name, f"{extension_points.PACKAGE}.{extension_points.DOCUMENTS[name]}", printed_by
    )


DOCUMENTS = (
    Declared(
        "compilediag.receipt",
        "compilediag.receipt.schema.receipt:Receipt",
        "run, probe, analyze, show",
    ),
    Declared("compilediag.fix", "compilediag.runs.trials.document:FixDocument", "fix"),
    Declared(
        "compilediag.fix-plan",
        "compilediag.runs.trials.document:FixPlanDocument",
        "fix --dry-run",
    ),
    Declared("compilediag.rule", "compilediag.views.explained:RuleDocument", "explain CODE"),
    Declared("compilediag.rules", "compilediag.views.explained:RulesDocument", "explain --list"),
    Declared("compilediag.finding", "compilediag.views.explained:FindingDocument", "explain N"),
    _of_extension("compilediag.repro", "repro"),
    Declared("compilediag.diff", "compilediag.compare.diff:DiffDocument", "diff"),
    Declared("compilediag.judgement", "compilediag.views.gate.json:JudgementDocument", "gate"),
    _of_extension("compilediag.stats", "stats"),
    _of_extension("compilediag.trend", "trend"),
    Declared("compilediag.plan", "compilediag.receipt.bucket_plan:PlanDocument", "plan"),
    Declared("compilediag.doctor", "compilediag.views.checkup:DoctorDocument", "doctor"),
)
