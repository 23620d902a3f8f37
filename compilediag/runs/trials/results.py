"""Results of a campaign of trials: `fix.json` beside the receipt, proofs in it, and documents of
`fix --json` and `fix --dry-run --json`."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from typing import Any

import msgspec
from msgspec import Struct

from compilediag.compare.gate.baseline_file import write_whole
from compilediag.fixes.observed import Listed, Result, Tried
from compilediag.json_document import Document, builtins_of
from compilediag.receipt.file import write_receipt
from compilediag.receipt.proofs import sources_digest
from compilediag.receipt.schema.compiles import (
    FindingRecord,
    FixRecord,
    Place,
    ProofRecord,
    RefusedChange,
)
from compilediag.receipt.schema.receipt import Receipt
from compilediag.rules.changes import Change, EditImpossible
from compilediag.rules.variables import export_line, joined
from compilediag.runs.trials.campaign import Campaign
from compilediag.runs.trials.one import SEED
from compilediag.runs.trials.sources import as_patch


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
    seed: int
    fresh_caches: bool
    complete: bool
    """false: the budget was spent, or it was interrupted."""
    notes: tuple[str, ...]
    environment: tuple[str, ...]
    """The proved variables as lines for a shell."""
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
    """What would be tried for each finding; nothing was run."""

    receipt_id: str
    findings: tuple[PlannedFinding, ...]


NAME = "fix.json"

MAX_REFUSED = 20
"""In the receipt; `fix.json` has them all."""


def proof_record(tried: Tried, campaign: Campaign) -> ProofRecord:
    """Make the record of a change with its certificate, and the torch and the code that it is
    of."""
    change, certificate = tried.change, tried.certificate
    seen = campaign.baseline.observed if campaign.baseline is not None else None
    files = campaign.receipt.header.provenance.source_sha256
    return ProofRecord(
        kind=change.kind,
        change=change.line,
        risk=tried.risk,
        runs=certificate.runs,
        points=certificate.points,
        torch=seen and seen.receipt.environment.torch,
        sources=seen and sources_digest(files, seen.receipt.header.provenance.source_sha256),
    )


def with_proofs(campaign: Campaign, results: Sequence[Result]) -> Receipt:
    """Add what was tried for its findings to the receipt; the other findings stay as they were."""
    fixes: dict[str, FixRecord] = {}
    for item in results:
        if not item.tried:
            continue
        refused = [
            RefusedChange(change=each.change.line, reason=refusal(each))
            for each in item.tried
            if not each.proved
        ]
        proof = item.finding.fix.proof
        failed = {each.change.line for each in item.tried if not each.certificate.holds}
        if item.proof is not None:
            proof = proof_record(item.proof, campaign)
        elif proof is not None and proof.change in failed:
            proof = None  # that of a campaign before
        fixes[item.finding.id] = msgspec.structs.replace(
            item.finding.fix,
            verified=proof is not None,
            proof=proof,
            refused=tuple(refused[:MAX_REFUSED]),
        )
    return msgspec.structs.replace(
        campaign.receipt,
        findings=tuple(
            msgspec.structs.replace(each, fix=fixes.get(each.id, each.fix))
            for each in campaign.receipt.findings
        ),
    )


def refusal(tried: Tried) -> str:
    """Say why a change is not proved."""
    return tried.certificate.reason or "it held in one run, and was not run again"


def as_json(campaign: Campaign, results: Sequence[Result]) -> dict[str, Any]:
    """Build the JSON of all that was tried, proved or refused, by finding: a `FixDocument`."""
    findings: list[FixedFinding] = []
    for item in results:
        tried = tuple(
            TriedRecord(
                **msgspec.structs.asdict(proof_record(each, campaign)),
                proved=each.proved,
                refused=None if each.proved else refusal(each),
                together_with=each.beside,
                patch=patch_of(campaign, each.change),
            )
            for each in item.tried
        )
        number = item.finding.id[1:]
        edited = item.proof is not None and item.proof.change.edits
        findings.append(
            FixedFinding(
                **_named(item.finding),
                candidates=len(item.listed.possible),
                impossible=item.listed.impossible,
                tried=tried,
                next=f"compilediag {f'fix {number} --apply' if edited else f'explain {number}'}",
            )
        )
    return builtins_of(
        FixDocument(
            schema="compilediag.fix",
            receipt_id=campaign.receipt.receipt_id,
            runs=campaign.runs,
            seed=SEED,
            fresh_caches=True,
            complete=not campaign.stopped,
            notes=tuple(campaign.notes),
            environment=tuple(environment_lines(campaign)),
            findings=tuple(findings),
        )
    )


def plan_as_json(
    receipt: Receipt, listed: Sequence[tuple[FindingRecord, Listed]]
) -> dict[str, Any]:
    """Build the JSON of what would be tried, by finding: a `FixPlanDocument`."""
    findings = tuple(
        PlannedFinding(
            **_named(finding),
            changes=tuple(PlannedChange(each.kind, each.line, each.risk) for each in item.possible),
            impossible=item.impossible,
            next=f"compilediag fix {finding.id[1:]}",
        )
        for finding, item in listed
    )
    document = FixPlanDocument(
        schema="compilediag.fix-plan", receipt_id=receipt.receipt_id, findings=findings
    )
    return builtins_of(document)


def _named(finding: FindingRecord) -> dict[str, Any]:
    """Return the fields of a `NamedFinding`."""
    return {name: getattr(finding, name) for name in NamedFinding.__struct_fields__}


def patch_of(campaign: Campaign, change: Change) -> str | None:
    """Make a diff of the edits of a change; None where it has none, or a file changed meanwhile."""
    try:
        return as_patch(campaign.edited_files([change])) if change.edits else None
    except EditImpossible:
        return None


def environment_lines(campaign: Campaign) -> list[str]:
    """Format the proved variables as lines for a shell; of several changes only where they were
    proved together."""
    pairs = [pair for change in campaign.together for pair in change.variables]
    return [export_line(*pair) for pair in joined(pairs).items()]


def save(campaign: Campaign, results: Sequence[Result], receipt_path: str) -> str:
    """Write `fix.json` beside the receipt and the proofs into it; return the path of the former.

    Raises:
        OutputUnwritable: a file cannot be written; it is left as it was.
    """
    path = os.path.join(os.path.dirname(receipt_path), NAME)
    write_whole(path, json.dumps(as_json(campaign, results), indent=1) + "\n")
    write_receipt(with_proofs(campaign, results), receipt_path)
    return path
