"""Results of a campaign of trials: `fix.json` beside the receipt, proofs in it, and documents of
`fix --json` and `fix --dry-run --json`."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec
from msgspec import Struct

from compilediag.certify.points import convert_points
from compilediag.compare.gate.baseline_file import write_whole
from compilediag.fixes.proof_types import FindingResult, ListedChanges, TriedChange
from compilediag.json_document import Document, convert_to_builtins
from compilediag.receipt.file import write_receipt
from compilediag.receipt.proofs import compute_sources_digest
from compilediag.receipt.schema.compiles import (
    FindingRecord,
    FixRecord,
    Place,
    ProofRecord,
    RefusedChange,
)
from compilediag.receipt.schema.receipt import Receipt
from compilediag.rules.changes import EditImpossible, ProgramChange
from compilediag.rules.environment_variables import format_export, join_values
from compilediag.runs.fix.campaign import Campaign
from compilediag.runs.fix.sources import format_patch
from compilediag.views.lookups import format_target


class TriedRecord(ProofRecord, frozen=True, kw_only=True):
    """A change that was tried, with the points of its certificate."""

    proved: bool
    refused: str | None
    """Why it is not proved."""
    together_with: tuple[str, ...]
    """Ids of findings whose changes were there too."""
    patch: str | None
    """Its edits as a diff; null where it has none, or a file changed meanwhile."""


class NamedFinding(Struct, frozen=True, kw_only=True):
    """A finding of the receipt."""

    id: str
    key: str | None = None
    rule: str
    severity: str
    variable: str | None
    title: str | None
    location: Place | None


class FixedFinding(NamedFinding, frozen=True, kw_only=True):
    """One finding and what was tried for it."""

    candidates: int
    """Changes that there were to try."""
    impossible: tuple[RefusedChange, ...]
    """Edits that the program's text does not allow, each with what stands in the way."""
    tried: tuple[TriedRecord, ...]
    next: str
    """The command that leads on."""


class FixDocument(Document, frozen=True, kw_only=True):
    """Everything that was tried, proved or refused, by finding."""

    receipt_id: str
    runs: int
    """Executions of the program, without the first one."""
    seed: int
    """Of its random generators, in every execution."""
    fresh_caches: bool
    complete: bool
    """false: the budget was spent, or it was interrupted."""
    notes: tuple[str, ...]
    environment: tuple[str, ...]
    """The proved variables as lines for a shell."""
    together: tuple[str, ...]
    """The changes that are proved by one run."""
    findings: tuple[FixedFinding, ...]


class PlannedChange(Struct, frozen=True):
    """A change that would be tried."""

    kind: str
    change: str
    """The line that a user would write."""
    risk: str
    """What else it changes."""


class PlannedFinding(NamedFinding, frozen=True, kw_only=True):
    """One finding and what would be tried for it."""

    changes: tuple[PlannedChange, ...]
    """In the order of trying."""
    impossible: tuple[RefusedChange, ...]
    """Edits that the program's text does not allow, each with what stands in the way."""
    next: str
    """The command that leads on."""


class FixPlanDocument(Document, frozen=True, kw_only=True):
    """Changes that would be tried for each finding; nothing was run."""

    receipt_id: str
    findings: tuple[PlannedFinding, ...]


NAME = "fix.json"

NOT_CERTIFIED = "it removes the finding in a short run, and was not certified"

MAX_REFUSED = 20
"""In the receipt; `fix.json` has them all."""


def make_proof_record(tried: TriedChange, campaign: Campaign) -> ProofRecord:
    """Make the record of a change with its certificate, and the torch and code that it is of."""
    return ProofRecord(
        kind=tried.change.kind,
        change=tried.change.line,
        risk=tried.risk,
        runs=tried.runs,
        points=convert_points(tried.certificate.points),
        torch=campaign.receipt.environment.torch,
        sources=compute_sources_digest(campaign.receipt.header.provenance.source_sha256),
    )


def add_proofs(campaign: Campaign, results: Sequence[FindingResult]) -> Receipt:
    """Add what was tried for its findings to the receipt; the other findings stay as they were."""
    fixes: dict[str, FixRecord] = {}
    for result in results:
        if not result.tried:
            continue
        refused = [
            RefusedChange(change=attempt.change.line, reason=describe_refusal(attempt))
            for attempt in result.tried
            if not attempt.proved
        ]
        proof = result.finding.fix.proof
        if result.proof is not None:
            proof = make_proof_record(result.proof, campaign)
        elif proof is not None and proof.change in {change.change for change in refused}:
            proof = None  # that of a campaign before
        fixes[result.finding.id] = msgspec.structs.replace(
            result.advised.fix,
            verified=proof is not None,
            proof=proof,
            refused=tuple(refused[:MAX_REFUSED]),
        )
    return msgspec.structs.replace(
        campaign.receipt,
        findings=tuple(
            msgspec.structs.replace(finding, fix=fixes.get(finding.id, finding.fix))
            for finding in campaign.receipt.findings
        ),
    )


def describe_refusal(tried: TriedChange) -> str:
    """Say why a change is not proved."""
    return tried.certificate.reason or NOT_CERTIFIED


def build_fix_json(campaign: Campaign, results: Sequence[FindingResult]) -> dict[str, Any]:
    """Build the JSON of all that was tried, proved or refused, by finding: a `FixDocument`."""
    findings: list[FixedFinding] = []
    for result in results:
        tried = tuple(
            TriedRecord(
                **msgspec.structs.asdict(make_proof_record(attempt, campaign)),
                proved=attempt.proved,
                refused=None if attempt.proved else describe_refusal(attempt),
                together_with=attempt.beside,
                patch=make_patch(campaign, attempt.change),
            )
            for attempt in result.tried
        )
        proved = () if result.proof is None else (result.proof.change,)
        findings.append(
            FixedFinding(
                **_get_named_fields(result.finding),
                candidates=len(result.listed.possible),
                impossible=result.listed.impossible,
                tried=tried,
                next=f"compilediag {choose_next(campaign.receipt, proved)}",
            )
        )
    return convert_to_builtins(
        FixDocument(
            schema="compilediag.fix",
            receipt_id=campaign.receipt.receipt_id,
            runs=campaign.trials.runs,
            seed=campaign.whole.pair.seed,
            fresh_caches=True,
            complete=not campaign.stopped,
            notes=tuple(campaign.notes),
            environment=tuple(format_env(campaign)),
            together=tuple(change.line for change in campaign.together),
            findings=tuple(findings),
        )
    )


def format_certify(receipt: Receipt) -> str:
    """Format the command that checks an edit of the program."""
    return f"certify -- {format_target(receipt)}"


def choose_next(receipt: Receipt, proved: Sequence[ProgramChange], *, applied: bool = False) -> str:
    """Choose the command that leads on from what is proved; `applied`: the edits were made."""
    if not proved:
        return format_certify(receipt)
    edited = not applied and any(change.edits for change in proved)
    return "fix --apply" if edited else f"run -- {format_target(receipt)}"


def build_plan(
    receipt: Receipt, listed: Sequence[tuple[FindingRecord, ListedChanges]]
) -> dict[str, Any]:
    """Build the JSON of what would be tried, by finding: a `FixPlanDocument`."""
    rows = tuple(
        PlannedFinding(
            **_get_named_fields(finding),
            changes=tuple(
                PlannedChange(change.kind, change.line, change.risk)
                for change in candidates.possible
            ),
            impossible=candidates.impossible,
            next=f"compilediag fix {finding.id[1:]}",
        )
        for finding, candidates in listed
    )
    plan = FixPlanDocument(
        schema="compilediag.fix-plan", receipt_id=receipt.receipt_id, findings=rows
    )
    return convert_to_builtins(plan)


def _get_named_fields(finding: FindingRecord) -> dict[str, Any]:
    """Return the fields of a `NamedFinding`."""
    return {name: getattr(finding, name) for name in NamedFinding.__struct_fields__}


def make_patch(campaign: Campaign, change: ProgramChange) -> str | None:
    """Make a diff of the edits of a change; None where it has none, or a file changed meanwhile."""
    try:
        return format_patch(campaign.make_edited_files([change])) if change.edits else None
    except EditImpossible:
        return None


def format_env(campaign: Campaign) -> list[str]:
    """Format proved variables as lines for a shell; of several changes only if proved together."""
    pairs = [pair for change in campaign.together for pair in change.variables]
    return [format_export(*pair) for pair in join_values(pairs).items()]


def read_together(
    receipt_path: str, listed: Mapping[str, ListedChanges]
) -> tuple[ProgramChange, ...]:
    """Read which of these changes the latest campaign proved by one run; empty where not all."""
    try:
        with open(os.path.join(os.path.dirname(receipt_path), NAME), encoding="utf-8") as stream:
            lines = json.load(stream)["together"]
    except (OSError, ValueError, KeyError, TypeError):
        return ()
    of_line = {change.line: change for its in listed.values() for change in its.possible}
    return tuple(of_line[line] for line in lines) if of_line.keys() >= {*lines} else ()


def save_results(campaign: Campaign, results: Sequence[FindingResult], receipt_path: str) -> str:
    """Write `fix.json` beside the receipt and the proofs into it; return the path of the former.

    Raises:
        OutputUnwritable: a file cannot be written; it is left as it was.
    """
    path = os.path.join(os.path.dirname(receipt_path), NAME)
    write_whole(path, json.dumps(build_fix_json(campaign, results), indent=1) + "\n")
    write_receipt(add_proofs(campaign, results), receipt_path)
    return path
