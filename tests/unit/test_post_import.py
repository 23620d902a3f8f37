"""Actions after an import: every session has its own, and none imports anything by itself."""

import importlib
import sys
import traceback
from pathlib import Path

import pytest

from compilediag_harness.base.post_import import PostImport


@pytest.fixture
def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """The name of a module that is not imported."""
    (tmp_path / "imported_later.py").write_text("ready = True\n", encoding="utf-8")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "imported_later", raising=False)
    return "imported_later"


def test_two_sessions_wait_for_one_module(module: str) -> None:
    """Both actions run once, after the module's own code, and the loader is as it was."""
    received: list[str] = []
    finders = [PostImport(), PostImport(), PostImport()]
    try:
        for number, finder in enumerate(finders):
            finder.run_after_import(
                module, lambda seen, n=number: received.append(f"{n} {seen.ready}")
            )
        assert received == []
        found = importlib.import_module(module)
        assert sorted(received) == ["0 True", "1 True", "2 True"]
        assert "exec_module" not in vars(found.__spec__.loader)
    finally:
        for finder in finders:
            finder.withdraw()
        sys.modules.pop(module, None)
    assert not [finder for finder in sys.meta_path if isinstance(finder, PostImport)]


def test_one_session_leaves_before_the_import(module: str) -> None:
    """Only finders that still wait are called; other imports are none of ours."""
    received: list[str] = []
    first, second = PostImport(), PostImport()
    try:
        first.run_after_import(module, lambda seen: received.append("first"))
        second.run_after_import(module, lambda seen: received.append("second"))
        second.withdraw()
        importlib.import_module(module)
    finally:
        first.withdraw()
        sys.modules.pop(module, None)
    assert received == ["first"]


@pytest.mark.skipif(sys.version_info < (3, 11), reason="a frame stays in a traceback")
def test_an_import_that_fails_reads_as_in_a_plain_run(module: str, tmp_path: Path) -> None:
    """The traceback is that of an import without us: no frame of ours, none of importlib."""
    (tmp_path / "imported_later.py").write_text("raise OSError('libgomp.so.1')\n")
    finder = PostImport()
    finder.run_after_import(module, lambda seen: None)
    try:
        with pytest.raises(OSError, match="libgomp") as raised:
            exec(f"import {module}")
    finally:
        finder.withdraw()
    rows = [row.name for row in traceback.extract_tb(raised.value.__traceback__)]
    assert rows == [rows[0], "<module>", "<module>"]
