"""Options of Dynamo's configuration that torch itself names in its report of a graph break."""

from __future__ import annotations

from collections.abc import Iterator

from compilediag.fixes.candidates.case import FIRST_WITH_UNBACKED, Case
from compilediag.fixes.candidates.options import DYNAMO, OVERRIDES, setting, variable
from compilediag.fixes.changes import Change
from compilediag.receipt.schema.evidence import BreakEvidence

_RISK = "holds for every compiled function; torch supports it only in part"

_UNFAITHFUL = frozenset(
    ("suppress_errors", "enable_faithful_generator_behavior", "use_numpy_random_stream")
)
_UNFAITHFUL_PREFIXES = ("_", "debug_", "skip_", "fail_on_")
"""Options that silence errors, leave something out, or change what is computed."""

_READ_OUTSIDE = frozenset(("compiled_autograd",))
"""Read where no frame is compiled: overriding them for frames has no effect."""


def hint_candidates(case: Case) -> Iterator[Change]:
    """One change with each option that the report of the break wants set."""
    options = BreakEvidence.of(case.finding.evidence).options or {}
    offered = " ".join(item.setting for item in case.finding.fix.candidates)
    for name, value in options.items():
        unfaithful = name in _UNFAITHFUL or name.startswith(_UNFAITHFUL_PREFIXES)
        if value not in ("True", "False") or unfaithful or name.upper() in offered:
            continue
        if case.version < FIRST_WITH_UNBACKED or name in _READ_OUTSIDE:
            yield setting(DYNAMO, name, value == "True", _RISK)
        else:
            yield variable(OVERRIDES, f">=0:{name}={value}", _RISK)
