"""The public surface of `import compilediag as cd`: what it holds, and what it costs."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

import compilediag

NAMES = [
    "Ablation",
    "AblationInvalid",
    "Cadence",
    "FixedShape",
    "Pipeline",
    "Tracker",
    "__version__",
    "ablation",
    "cadence",
    "drive",
    "pipeline",
    "read_ablation",
    "span",
    "step",
    "tracker",
    "watch",
]


def test_the_public_names() -> None:
    """A name is added or taken away on purpose: here, in docs/python_api.md, in the CHANGELOG."""
    assert compilediag.__all__ == NAMES
    for name in NAMES:
        assert getattr(compilediag, name) is not None
        assert name in dir(compilediag)


def test_public_names_are_what_they_say() -> None:
    """No submodule hides one of them, whatever was imported before."""
    import compilediag.runs.watch as module

    assert compilediag.watch is module.watch
    assert callable(compilediag.step)
    assert isinstance(compilediag.span("x"), compilediag.span)
    assert isinstance(compilediag.cadence("x", 2), compilediag.Cadence)


def test_no_module_has_a_public_name() -> None:
    """Importing a submodule binds its name in the package, and would hide what users call."""
    folder = Path(compilediag.__file__).parent
    modules = {path.stem for path in folder.iterdir()}
    assert "cli" in modules
    assert not modules & set(NAMES)


def test_an_unknown_name_is_an_attribute_error() -> None:
    """As of any module, and with the name in it."""
    with pytest.raises(AttributeError, match="'compilediag' has no attribute 'fixed_shape'"):
        compilediag.fixed_shape  # noqa: B018


CHILD = """
import sys
import compilediag as cd
from compilediag import cadence, drive, span, step
for _ in range(3):
    with span("x"):
        step()
assert drive(lambda step: cadence("c", 2).due(step), steps=3) == 3
import threading
assert threading.active_count() == 1
print(sorted({"torch", "rich", "click", "msgspec", "numpy"} & set(sys.modules)))
"""


def test_it_is_inert_and_imports_nothing_heavy(tmp_path: os.PathLike[str]) -> None:
    """Without `compilediag run`: no torch, no terminal library, no thread, no file."""
    done = subprocess.run(
        [sys.executable, "-c", CHILD],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        capture_output=True,
        text=True,
        check=True,
    )
    assert (done.stdout.strip(), done.stderr) == ("[]", "")
    assert os.listdir(tmp_path) == []
