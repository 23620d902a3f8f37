"""What tests of whole programs share: a Python that has torch already."""

import sys
from collections.abc import Iterator

import pytest
from fork_server import ForkServer

PYTHON = sys.executable


@pytest.fixture(scope="session")
def fork_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ForkServer]:
    """Starts programs as forks of one process, which has imported torch and what compiles load."""
    server = ForkServer(tmp_path_factory.mktemp("fork_server"))
    yield server
    server.close()


@pytest.fixture(scope="module")
def forked(fork_server: ForkServer) -> Iterator[None]:
    """`sys.executable` is the Python of the fork server, for the tests of a module that read what
    programs leave, and not how an interpreter starts or ends:

    pytestmark = pytest.mark.usefixtures("forked")
    """
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "executable", str(fork_server.python))
        yield


@pytest.fixture
def own_interpreter(monkeypatch: pytest.MonkeyPatch) -> None:
    """Python itself again, for one test of a module whose programs are forked."""
    monkeypatch.setattr(sys, "executable", PYTHON)
