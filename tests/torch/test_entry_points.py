"""Dynamo never meets the harness: whatever of it runs in compiled code is run as it is.

A function of ours below a compiled call is a frame, which Dynamo would count, guard and compile.
Nobody has to remember this for a new function: all code of the package is asked.
"""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

PROGRAM = Path(__file__).parents[1] / "support" / "offered_frames.py"


@pytest.fixture(scope="module", params=["run", "watch"])
def told(request: pytest.FixtureRequest) -> dict[str, Any]:
    """What an attached process says of the code of the harness."""
    done = subprocess.run(
        [sys.executable, str(PROGRAM), request.param], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


def test_no_function_is_offered_to_dynamo(told: dict[str, Any]) -> None:
    """Whether it is an entry point or is called by one; imported at first or in the end."""
    offered = told["offered"]
    assert not offered, f"{len(offered)} of {len(told['all'])}:\n" + "\n".join(offered[:100])


def test_all_code_is_asked(told: dict[str, Any]) -> None:
    """What stands in the source text was found among the functions that are alive."""
    assert len(told["all"]) > 2000
    assert not told["not asked"], "\n".join(told["not asked"])


def test_other_code_is_offered(told: dict[str, Any]) -> None:
    """The question can be answered with yes."""
    assert told["control"]
