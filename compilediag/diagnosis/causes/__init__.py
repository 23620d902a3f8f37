"""From false guards to causes: what had to be true, without consequences, nearest entry first."""

from __future__ import annotations

from compilediag.diagnosis.causes.recompile import causes_of

__all__ = ["causes_of"]
