"""Every document that a command prints with `--json`: its schema, its type, who prints it."""

from __future__ import annotations

from typing import NamedTuple


class Declared(NamedTuple):
    """Where a document is declared, and who prints it."""

    name: str
    """Of the schema."""
    type: str
    """Module and class."""
    printed_by: str


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
    Declared("compilediag.repro", "compilediag.commands.repro:ReproDocument", "repro"),
    Declared("compilediag.diff", "compilediag.compare.diff:DiffDocument", "diff"),
    Declared("compilediag.judgement", "compilediag.views.gate.json:JudgementDocument", "gate"),
    Declared("compilediag.stats", "compilediag.fleet.documents:StatsDocument", "stats"),
    Declared("compilediag.rows", "compilediag.fleet.documents:RowsDocument", "stats --sql"),
    Declared("compilediag.trend", "compilediag.fleet.documents:TrendDocument", "trend"),
    Declared("compilediag.plan", "compilediag.receipt.bucket_plan:PlanDocument", "plan"),
    Declared("compilediag.doctor", "compilediag.views.checkup:DoctorDocument", "doctor"),
)
