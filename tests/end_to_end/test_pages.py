"""The pages of rules are found in a checkout and in an installed wheel."""

from __future__ import annotations

import subprocess
import sys
import zipfile
from pathlib import Path

from compilediag.commands import explain

ROOT = Path(__file__).resolve().parents[2]


def test_a_wheel_carries_the_pages(tmp_path: Path) -> None:
    """`compilediag explain` works where only the wheel is installed."""
    build = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(tmp_path)]
    subprocess.run(build, cwd=ROOT, check=True, capture_output=True)
    (wheel,) = tmp_path.glob("*.whl")
    installed = tmp_path / "installed"
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(installed)
    shown = subprocess.run(
        [sys.executable, "-c", SHOW, str(installed)],
        cwd=tmp_path,
        check=True,
        capture_output=True,
        text=True,
    )
    assert shown.stdout == explain.page("CD103")


SHOW = """
import sys
sys.path.insert(0, sys.argv[1])
from compilediag.commands import explain
assert explain.__file__.startswith(sys.argv[1]), explain.__file__
sys.stdout.write(explain.page("CD103"))
"""
