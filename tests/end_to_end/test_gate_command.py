"""Baselines of two branches, merged by git itself."""

import subprocess
from pathlib import Path

from gate_lanes import lane

from compilediag.compare.gate.baseline import Baseline, format_lock, parse_lock


def test_git_merges_two_branches(tmp_path: Path) -> None:
    """One branch allows a cause of one lane, the other one of another: no conflict."""
    base = Baseline((lane("a", "k", "z"), lane("b", "k", "z")))
    ours = base.replace_configurations([lane("a", "k", "n", "z")])
    theirs = base.replace_configurations([lane("b", "k", "m", "z")])
    files = [tmp_path / name for name in ("ours", "base", "theirs")]
    for file, lock in zip(files, (ours, base, theirs), strict=True):
        file.write_text(format_lock(lock), encoding="utf-8")
    subprocess.run(["git", "merge-file", *map(str, files)], check=True)
    merged = parse_lock(files[0].read_text(encoding="utf-8"))
    assert merged == Baseline((lane("a", "k", "n", "z"), lane("b", "k", "m", "z")))
