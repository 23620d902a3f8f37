"""The judgement as JSON, whole: for programs."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from msgspec import to_builtins
from msgspec.structs import asdict

from compilediag._version import __version__
from compilediag.compare.gate.judgement import Item, Judgement
from compilediag.views.style import RenderOptions

SCHEMA = "compilediag.judgement"
VERSION = "1.2"
"""Minor: a field more. Major: a field that means something else."""

_ORDER = (
    *(
        "lane",
        "passed",
        "judged",
        "receipt_id",
        "verdict",
        "baseline",
        "limits",
        "strict",
        "require_proved_fix",
    ),
    *("counts", "failures", "improvements", "known", "notices"),
)


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
    fields: dict[str, Any] = asdict(judgement)
    fields |= {"passed": judgement.passed, "judged": judgement.judged}
    fields["counts"] = [asdict(item) for item in judgement.counts]
    for name in ("failures", "improvements", "known"):
        fields[name] = [_item(item) for item in fields[name]]
    return {name: fields[name] for name in _ORDER}


def _item(item: Item) -> dict[str, Any]:
    return asdict(item) | {"call": to_builtins(item.call), "fingerprint": item.fingerprint}
