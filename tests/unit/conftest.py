"""What makes a test a unit test: it starts no process and imports no torch.

The hooks below refuse both, so that `make check` stays the loop that a contributor can live in.
"""

import sys
from collections.abc import Iterator
from typing import Any

import pytest

_REFUSED = frozenset({"subprocess.Popen", "os.fork", "os.forkpty", "os.posix_spawn"})
_state = {"unit": False}


def _refuse(event: str, arguments: tuple[Any, ...]) -> None:
    if not _state["unit"]:
        return
    if event in _REFUSED:
        raise AssertionError(f"a unit test starts a process ({event}): it is for tests/end_to_end")
    if event == "import" and arguments[0] == "torch":
        raise AssertionError("a unit test imports torch: it is for tests/torch")


sys.addaudithook(_refuse)


@pytest.fixture(autouse=True)
def _unit() -> Iterator[None]:  # pyright: ignore[reportUnusedFunction]
    _state["unit"] = True
    yield
    _state["unit"] = False
