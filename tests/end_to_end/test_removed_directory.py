"""A target that removes the directory of its run ends as it would, and it is said why there is no
receipt."""

import sys

from command_line import captured

TARGET = """
import os, shutil, sys
shutil.rmtree(os.environ["COMPILEDIAG_RUN_DIR"])
sys.exit(int(sys.argv[1]))
"""


def test_the_exit_code_is_the_targets_and_no_gate_passes(tmp_path) -> None:
    """A sentence names the directory; without a receipt no run ends with 0."""
    (tmp_path / "x.py").write_text(TARGET)
    env = {"PATH": "/usr/bin:/bin", "HOME": str(tmp_path)}
    for code, expected in ((5, 5), (0, 70)):
        words = ("-m", "compilediag", "run", "x.py", str(code))
        done = captured(sys.executable, *words, cwd=tmp_path, env=env)
        assert done.returncode == expected, done.stderr
        assert "was removed while it went on" in " ".join(done.stderr.split())
        assert not [*tmp_path.rglob("receipt.json")]
