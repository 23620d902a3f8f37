"""Where the repository is in which a command runs, for formats that mark its lines."""

from __future__ import annotations

import os
from collections.abc import Mapping

from compilediag.views.style import RenderOptions

_SAID_BY = ("GITHUB_WORKSPACE", "CI_PROJECT_DIR")
"""Where GitHub and GitLab have put the repository; it may lie there without its `.git`."""


def look_of_repository(folder: str, environment: Mapping[str, str]) -> RenderOptions:
    """Paths relative to the root of the repository that holds `folder`, or to `folder` itself."""
    root = _root(folder, environment)
    below = os.path.relpath(folder, root)
    return RenderOptions(root=root, folder="" if below == "." else below)


def _root(folder: str, environment: Mapping[str, str]) -> str:
    here = folder
    while here != os.path.dirname(here):
        if os.path.exists(os.path.join(here, ".git")):
            return here
        here = os.path.dirname(here)
    said = [os.path.normpath(environment[name]) for name in _SAID_BY if environment.get(name)]
    return next((root for root in said if _holds(root, folder)), folder)


def _holds(root: str, folder: str) -> bool:
    return folder == root or folder.startswith(root.rstrip("/") + "/")
