"""HTML pages from jinja2 templates: everything put into one is escaped, and nothing else runs."""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from compilediag.views.document import Overview
from compilediag.views.terminal import join_parts


@dataclass(frozen=True, slots=True)
class Assets:
    """Texts of the files in `assets/` and `vendor/`; read by `runs/offline/html_file.py`."""

    templates: Mapping[str, str]
    """Jinja templates by their names."""
    style: str
    script: str

    @property
    def policy(self) -> str:
        """The Content-Security-Policy: a page runs and shows these two, and fetches nothing."""
        return (
            f"default-src 'none'; style-src '{_hash_source(self.style)}'; "
            f"script-src '{_hash_source(self.script)}'; base-uri 'none'; form-action 'none'"
        )


_IN_SCRIPT = str.maketrans(
    {"<": "\\u003c", ">": "\\u003e", "&": "\\u0026", "\u2028": "\\u2028", "\u2029": "\\u2029"}
)
"""Characters that end a script element or a line of JavaScript, as JSON may write them."""


def render_page(assets: Assets, name: str, data: Mapping[str, Any], **context: Any) -> str:
    """Render a whole page: its script draws `data`, every text of `context` is escaped."""
    from jinja2 import DictLoader, Environment, StrictUndefined
    from markupsafe import Markup

    # With StrictUndefined a field that the template does not find raises instead of leaving a hole.
    made = Environment(
        autoescape=True,
        loader=DictLoader(assets.templates),
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    made.filters["plain"] = join_parts
    made.filters["ours"] = Markup  # the style, the script and JSON that cannot end its element
    text = json.dumps(data, ensure_ascii=True, allow_nan=False, separators=(",", ":"))
    return made.get_template(name).render(
        policy=assets.policy,
        style=assets.style,
        script=assets.script,
        data=text.translate(_IN_SCRIPT),
        **context,
    )


def render_overview(overview: Overview, assets: Assets) -> str:
    """Render the page of a document."""
    return render_page(assets, "overview.html.j2", {}, about=overview)


def _hash_source(text: str) -> str:
    """Hash the text between the tags: https://www.w3.org/TR/CSP3/#source-list-syntax."""
    digest = hashlib.sha256(text.encode("utf-8")).digest()
    return f"sha256-{base64.b64encode(digest).decode('ascii')}"
