"""Proofs of changes: they hold only for the code and the torch that they were run with."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping

from compilediag.receipt.schema.compiles import FindingRecord, ProofRecord
from compilediag.receipt.schema.receipt import Receipt

MIN_RUNS = 2  #: With the change: one run proves nothing.

CERTIFIED = "certified"
"""Kind of a proof by `compilediag certify`."""


def compute_sources_digest(digests: Mapping[str, str]) -> str:
    """Compute one digest for files by their own (SHA-256)."""
    lines = [f"{file}\x00{digest}\n" for file, digest in sorted(digests.items())]
    return hashlib.sha256("".join(lines).encode("utf-8", "replace")).hexdigest()


def explain_missing_proof(finding: FindingRecord, receipt: Receipt) -> str | None:
    """Explain why no change is proved for a finding of this receipt; None where one is."""
    proof = finding.fix.proof
    if proof is None:
        tried = len(finding.fix.refused)
        many = "one was tried and refused" if tried == 1 else f"{tried} were tried and refused"
        return f"no change is proved ({many})" if tried else "no change is proved"
    compared_whole = proof.kind == CERTIFIED  # every call, not a sample
    enough = 1 if compared_whole else MIN_RUNS
    if proof.runs < enough or any(point.passed is False for point in proof.points):
        return "its change did not hold in two runs"
    if proof.torch is None or proof.sources is None:
        return "its change was proved for code and a torch that are not known"
    ran = receipt.environment.torch
    if proof.torch != ran:
        return f"its change was proved with torch {proof.torch}, and this run had {ran}"
    if proof.sources != compute_sources_digest(receipt.header.provenance.source_sha256):
        return "its change was proved for other code"
    return None


def describe_effect(proof: ProofRecord) -> str:
    """Describe what the change does to its finding: "recompiles 5 → 0"; empty where not known."""
    return next((point.sentence for point in proof.points if point.name == "finding"), "")


def describe_proved_change(finding: FindingRecord, receipt: Receipt) -> str | None:
    """Describe the change proved for a finding, with what it does; None without such a proof."""
    proof = finding.fix.proof
    if proof is None or explain_missing_proof(finding, receipt) is not None:
        return None
    effect = describe_effect(proof)
    return f"{proof.change} ({effect})" if effect else proof.change
