"""Keeps watched tests apart: what was compiled before is forgotten, workers share no cache."""

from __future__ import annotations

import os
import re
import sys
import tempfile

import pytest

CACHE_VARIABLE = "TORCHINDUCTOR_CACHE_DIR"


def own_cache_folder(config: pytest.Config) -> None:
    """A worker of pytest-xdist compiles into a folder of its own, kept between runs, unless the
    user or torch itself has already chosen one."""
    worker = getattr(config, "workerinput", {}).get("workerid")
    if worker is None or CACHE_VARIABLE in os.environ:
        return
    name = re.sub(r"[^\w.-]", "_", f"torchinductor_{os.getuid()}_{worker}")
    folder = os.path.join(tempfile.gettempdir(), name)
    try:
        os.makedirs(folder, mode=0o700, exist_ok=True)
        ours = not os.path.islink(folder) and os.stat(folder).st_uid == os.getuid()
    except OSError:
        ours = False
    # What lies there is loaded as code: a folder somebody else has put there is not used.
    os.environ[CACHE_VARIABLE] = folder if ours else tempfile.mkdtemp(prefix=f"{name}_")


def forget_compiled_code() -> None:
    """`torch.compiler.reset()`, where Dynamo is loaded: else there is nothing to forget, and
    importing it here would be earlier than the program under test does."""
    if "torch._dynamo" in sys.modules:
        sys.modules["torch"].compiler.reset()
