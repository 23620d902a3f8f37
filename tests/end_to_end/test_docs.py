"""The documentation is complete and fresh: commands, rules, errors, links."""

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def test_generated_pages_are_fresh() -> None:
    """`make docs` would change nothing. In a process of its own: commands that ran in this one
    have had their help adjusted to the terminal they thought they had."""
    check = [sys.executable, str(ROOT / "tools" / "generate_docs.py"), "--check"]
    done = subprocess.run(check, capture_output=True, text=True, check=False, cwd=ROOT)
    assert (done.returncode, done.stdout) == (0, ""), done.stderr
