"""The judgement as JSON, whole: for programs."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from msgspec.structs import asdict

from compilediag._version import __version__
from compilediag.compare.gate.judgement import Item, Judgement
from compilediag.views.style import RenderOptions

SCHEMA = "compilediag.judgement"
VERSION = "1.0"
"""Minor: a field more. Major: a field that means something else."""


def render(judgements: Sequence[Judgement], options: RenderOptions) -> str:
    """Every field of every judgement; only ASCII, all else is escaped."""
    plain = {
        "schema": SCHEMA,
        "version": VERSION,
        "compilediag": __version__,
        # Nothing judged is no pass.
        "passed": bool(judgements) and all(item.passed for item in judgements),
        "judged": bool(judgements) and all(item.judged for item in judgements),
        "judgements": [_judgement(item) for item in judgements],
    }
    return json.dumps(plain, indent=1) + "\n"


def _judgement(judgement: Judgement) -> dict[str, Any]:
    return {
        "lane": judgement.lane,
        "passed": judgement.passed,
        "judged": judgement.judged,
        "receipt_id": judgement.receipt_id,
        "verdict": judgement.verdict,
        "baseline": judgement.baseline,
        "limits": list(judgement.limits),
        "strict": judgement.strict,
        "counts": [asdict(item) for item in judgement.counts],
        "failures": [_item(item) for item in judgement.failures],
        "improvements": [_item(item) for item in judgement.improvements],
        "known": [_item(item) for item in judgement.known],
        "notices": list(judgement.notices),
    }


def _item(item: Item) -> dict[str, Any]:
    return {**asdict(item), "fingerprint": item.fingerprint}
