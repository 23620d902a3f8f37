"""What a receipt that takes long to make shows meanwhile, where there is no terminal."""

import itertools
import os
import re

from compilediag.runs.work_progress import WorkProgress


def shown(*, silent: bool = False, silent_s: float = 0.0, lines: int = 0) -> str:
    """What comes through a pipe; the work lasts until it has so many lines of its stage."""
    reading, writing = os.pipe()
    with os.fdopen(reading) as pipe:
        with (
            os.fdopen(writing, "w") as stream,
            WorkProgress(stream, silent=silent, silent_s=silent_s, line_every_s=0.001) as work,
        ):
            work.set_stage("explaining 7 recompiles")
            # The thread may have been faster, with what is done at first.
            of_stage = (line for line in iter(pipe.readline, "") if "explaining" in line)
            found = "".join(itertools.islice(of_stage, lines))
        return found or pipe.read()


def test_lines_say_what_is_done() -> None:
    """One line after another, as long as it takes."""
    found = shown(lines=3)
    assert found.count("compilediag: ") == 3
    assert re.search(r"explaining 7 recompiles, \d+ s\n", found)


def test_quick_work_shows_nothing() -> None:
    """The receipts of most runs are there before anybody waits for them."""
    assert shown(silent_s=3600.0) == ""


def test_quiet_shows_nothing() -> None:
    """However long it takes."""
    assert shown(silent=True) == ""
