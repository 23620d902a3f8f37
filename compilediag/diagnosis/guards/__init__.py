"""Guards as text: printed reasons, guard expressions and sources, read and named.

Pure text work: nothing here evaluates a guard, and nothing raises on text it does not know.
"""

from __future__ import annotations

from compilediag.diagnosis.guards.families import family_of_text
from compilediag.diagnosis.guards.reason import Reason, parse_reason
from compilediag.diagnosis.guards.variables import variable_of

__all__ = ["Reason", "family_of_text", "parse_reason", "variable_of"]
