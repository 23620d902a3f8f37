"""Python with the inside alone: the package that a target can import."""

import os
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any

from compilediag_harness.base import journal

HARNESS = str(Path(journal.__file__).parents[2])


def python(code: str, *arguments: str, **options: Any) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code), *arguments],
        env={**os.environ, "PYTHONPATH": HARNESS},
        capture_output=True,
        text=True,
        check=False,
        **options,
    )
