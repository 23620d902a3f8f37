"""The one command that leads on from a receipt: the same on a screen, on a page and in JSON."""

from __future__ import annotations

from typing import Any

from compilediag.diagnosis.codes import BLIND, WRITTEN
from compilediag.receipt.schema.receipt import Receipt
from compilediag.receipt.user_line import is_foreign_record
from compilediag.views import lookups
from compilediag.views.headline import is_training_alone, list_trainer_figures


def choose_command(receipt: Receipt, suffix: str, *, changed: bool = False) -> str:
    """Choose the command, without the program's name; `suffix` is what commands need to find this
    receipt again, such as a blank and its path. `changed`: there is a recorded run of the same
    command line with other sources, with which nothing compared its results yet."""
    chosen, target = lookups.list_main_findings(receipt), lookups.format_target(receipt)
    certificate: dict[str, Any] = receipt.extensions.get("certificate", {})
    # Of a run that failed: once its exception is mended.
    unfinished = receipt.status == "interrupted" or (
        receipt.status == "failed" and receipt.verdict != "blind"
    )
    if unfinished and not chosen and target != lookups.UNKNOWN_TARGET:
        return f"certify -- {target}" if certificate else f"run {target}"
    blind = [finding.rule for finding in receipt.findings if finding.rule in BLIND]
    if receipt.verdict == "blind" and not chosen:
        shown = list_trainer_figures(receipt) or is_training_alone(receipt)
        command = f"explain {blind[0]}" if blind else "doctor"
        return f"show --steps{suffix}" if shown else command
    if not chosen:
        whole = receipt.verdict == "clean" and receipt.status == "complete"
        # A change, or the new state of a certificate that is not proved.
        changed = changed or certificate.get("verdict", "proved") != "proved"
        if whole and target != lookups.UNKNOWN_TARGET and changed:
            return f"certify -- {target}"
        return f"gate --update{suffix}" if whole else "doctor"
    tried = any((finding.next or "").startswith("compilediag fix") for _, finding in chosen)
    if tried and receipt.status == "complete" and target != lookups.UNKNOWN_TARGET:
        return f"fix {target}"
    # For a value in a library that no known line of the program's own changed; only of the latest
    # run, which is the one that is repeated.
    key, first = chosen[0]
    if not suffix and receipt.write_tracing is None and first.rule in WRITTEN:
        known = first.common_cause is not None or lookups.list_writers(first, receipt)
        if is_foreign_record(first) and not known:
            return f"run --trace-writes {target}"
    return f"explain {key}{suffix}"
