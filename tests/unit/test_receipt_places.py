"""Paths in a receipt: short below the working directory, untouched elsewhere."""

from __future__ import annotations

import pytest

from compilediag.receipt.build.relative_paths import PathShortener
from compilediag.timeline.timeline import Process, Timeline
from compilediag_harness.wire import ProcessStarted


def places(*folders: str) -> PathShortener:
    started = [ProcessStarted(0.0, 1, 1, 0, None, None, (), "", cwd, "", "3") for cwd in folders]
    return PathShortener(
        Timeline(
            processes=tuple(Process(n, each, None, {}, None) for n, each in enumerate(started))
        )
    )


@pytest.mark.parametrize(
    ("file", "short"),
    [
        ("/home/me/p/model.py", "model.py"),
        ("/home/me/p/src/a b.py", "src/a b.py"),
        ("/home/me/p2/model.py", "/home/me/p2/model.py"),
        ("/home/me/model.py", "/home/me/model.py"),
        ("model.py", "model.py"),
        ("<string>", "<string>"),
    ],
)
def test_short(file: str, short: str) -> None:
    """Only what lies below the folder loses it; a folder with a longer name is another."""
    assert places("/home/me/p").short(file) == short


def test_texts() -> None:
    """Inside of texts, lists and maps; never in the middle of another path."""
    value = {"a": ["at /p/x.py:3 and (/p/y.py)", 5, None], "b": "/q/p/x.py /p/z.py ./p/x.py"}
    assert places("/p").shorten(value) == {
        "a": ["at x.py:3 and (y.py)", 5, None],
        "b": "/q/p/x.py z.py ./p/x.py",
    }


def test_several_processes() -> None:
    """The longest working directory that fits counts."""
    both = places("/p", "/p/sub")
    assert (both.short("/p/sub/x.py"), both.short("/p/y.py")) == ("x.py", "y.py")


@pytest.mark.parametrize("folders", [(), ("/",), ("",)])
def test_no_useful_folder(folders: tuple[str, ...]) -> None:
    """Run from the root, or with no process known, paths stay whole."""
    assert places(*folders).short("/x.py") == "/x.py"
    assert places(*folders).shorten("at /x.py") == "at /x.py"
