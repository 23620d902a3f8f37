"""The parts of a page that are the same in every report: template, style, scripts."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Assets:
    """Texts of the files in `assets/` and `vendor/`; read by `runs/offline/html_file.py`."""

    templates: Mapping[str, str]
    """Jinja templates by their names."""
    style: str
    script: str

    @property
    def policy(self) -> str:
        """The Content-Security-Policy of a page: it runs and shows nothing but these two, and
        fetches nothing from anywhere."""
        return (
            f"default-src 'none'; style-src '{_digest(self.style)}'; "
            f"script-src '{_digest(self.script)}'; base-uri 'none'; form-action 'none'"
        )


def _digest(text: str) -> str:
    """As https://www.w3.org/TR/CSP3/#source-list-syntax has it: of the text between the tags."""
    digest = hashlib.sha256(text.encode("utf-8")).digest()
    return f"sha256-{base64.b64encode(digest).decode('ascii')}"
