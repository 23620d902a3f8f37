"""The register of codes, as the rules know it; the data lie below, in `compilediag.codes`."""

from __future__ import annotations

from compilediag.codes import REGISTER, CodeInfo, info, slug_of

__all__ = ["REGISTER", "CodeInfo", "info", "slug_of"]
