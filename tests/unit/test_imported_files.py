"""Which files of its modules a process records when it ends."""

import importlib.util
import sys
from pathlib import Path

import pytest

from compilediag_harness.blame import source_locations
from compilediag_harness.blame.source_locations import complete_path, list_imported_files
from compilediag_harness.wire import Location


def test_own_files_and_no_others(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A module of the user's; neither the standard library nor an installed package."""
    (tmp_path / "of_the_user.py").touch()
    monkeypatch.syspath_prepend(tmp_path)
    importlib.import_module("of_the_user")
    started = getattr(sys.modules["__main__"], "__file__", None)  # counts as the user's own
    found = [file for file in list_imported_files() or () if file != started]
    assert str(tmp_path / "of_the_user.py") in found
    assert not [
        file for file in found if "site-packages" in file or file.endswith("/json/__init__.py")
    ]


def test_a_lazy_module_is_not_loaded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A look at it would run the user's code."""
    file = tmp_path / "lazy.py"
    file.write_text("raise SystemExit('loaded')\n", encoding="utf-8")
    spec = importlib.util.spec_from_file_location("lazy_of_the_user", file)
    spec.loader = importlib.util.LazyLoader(spec.loader)
    module = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, "lazy_of_the_user", module)
    spec.loader.exec_module(module)
    list_imported_files()
    complete_path(Location("of/nobody.py", 1), ())


def test_what_only_says_that_it_is_a_module_is_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """As the libraries of cffi do, which have no names."""

    class Library:
        __slots__ = ()
        __class__ = type(sys)

    monkeypatch.setitem(sys.modules, "library_of_cffi", Library())
    assert isinstance(sys.modules["library_of_cffi"], type(sys))
    assert list_imported_files() is not None


def test_too_many_are_none(monkeypatch: pytest.MonkeyPatch) -> None:
    """One record has room for so much."""
    monkeypatch.setattr(source_locations, "MAX_IMPORTED_CHARS", 0)
    assert list_imported_files() is None
