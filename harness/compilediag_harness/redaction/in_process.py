"""The redactor of this process: for what is written inside the target.

Its known values are those of the process's own command line and environment; a program that loads
secrets into its environment later, as from a .env file, is noticed by the number of variables.
"""

from __future__ import annotations

import os
import sys
from typing import Any

from compilediag_harness.redaction.nested_redactor import NestedRedactor
from compilediag_harness.redaction.redactor import Redactor, list_secret_values

_redactor = Redactor()
_nested = NestedRedactor(_redactor)
_variables_seen = -1


def get_redactor() -> Redactor:
    """Get the redactor, with all secrets that are known by now."""
    global _variables_seen
    if len(os.environ) != _variables_seen:
        _variables_seen = len(os.environ)
        # Environment and arguments may change in another thread.
        _redactor.learn(list_secret_values(tuple(sys.orig_argv), dict(os.environ)))
    return _redactor


def redact_fields(event: Any) -> dict[str, Any]:
    """Redact an event; returns its fields by name."""
    get_redactor()
    return _nested.redact_fields(event)


def redact_text(text: str) -> str:
    """Replace the secrets in a text."""
    return get_redactor().redact_text(text)


def redact_value(value: Any) -> Any:
    """Replace the secrets in JSON values, and all that stands at names like a secret's."""
    get_redactor()
    return _nested.redact_value(value)
