"""The one command that leads on from a receipt: the same on a screen, on a page and in JSON."""

from __future__ import annotations

from typing import Any

from compilediag.diagnosis.codes import BLIND, WRITTEN
from compilediag.receipt.schema.compiles import FindingRecord
from compilediag.receipt.schema.receipt import Receipt
from compilediag.receipt.user_line import is_foreign_record
from compilediag.views import lookups
from compilediag.views.headline import is_training_alone, list_trainer_figures


def choose_command(receipt: Receipt, suffix: str, *, changed: bool = False) -> str:
    """Choose the command, without the program's name; `suffix` is what commands need to find this
    receipt again, such as a blank and its path. `changed`: there is a recorded run of the same
    command line with other sources, with which nothing compared its results yet."""
    chosen, target = lookups.list_main_findings(receipt), lookups.format_target(receipt)
    blind = [finding.rule for finding in receipt.findings if finding.rule in BLIND]
    if receipt.verdict == "blind" and not chosen:
        shown = list_trainer_figures(receipt) or is_training_alone(receipt)
        command = f"explain {blind[0]}" if blind else "doctor"
        return f"show --steps{suffix}" if shown else command
    if not chosen:
        whole = receipt.verdict == "clean" and receipt.status == "complete"
        if whole and target != lookups.UNKNOWN_TARGET and (changed or _is_unproved(receipt)):
            return f"certify -- {target}"
        return f"gate --update{suffix}" if whole else "doctor"
    tried = receipt.status == "complete"
    tried = tried and any(
        (finding.next or "").startswith("compilediag fix") for _, finding in chosen
    )
    if tried and target != lookups.UNKNOWN_TARGET:
        return f"fix {target}"
    # For a value in a library that no known line of the program's own changed; only of the latest
    # run, which is the one that is repeated.
    if not suffix and receipt.write_tracing is None and _is_out_of_sight(chosen[0][1], receipt):
        return f"run --trace-writes {target}"
    return f"explain {chosen[0][0]}{suffix}"


def _is_unproved(receipt: Receipt) -> bool:
    """True for the new state of a certificate that is not proved."""
    certificate: dict[str, Any] | None = receipt.extensions.get("certificate")
    return certificate is not None and certificate.get("verdict") != "proved"


def _is_out_of_sight(finding: FindingRecord, receipt: Receipt) -> bool:
    known = finding.common_cause is not None or lookups.list_writers(finding, receipt)
    return finding.rule in WRITTEN and is_foreign_record(finding) and not known
