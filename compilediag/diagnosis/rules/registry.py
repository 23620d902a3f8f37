"""The register of codes, as the rules see it; the data stand in `diagnosis/codes.py`."""

from __future__ import annotations

from compilediag.diagnosis.codes import REGISTER, CodeInfo, info, slug_of

__all__ = ["REGISTER", "CodeInfo", "info", "slug_of"]
