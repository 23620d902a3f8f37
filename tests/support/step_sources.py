"""Sessions that count steps: those of this process, and those of a program without optimizers."""

from collections.abc import Iterator
from contextlib import contextmanager

from compilediag_harness.base.session import Session
from compilediag_harness.steps import steps
from compilediag_harness.steps.step_detection import OptimizerRegistry
from compilediag_harness.wire import Event


@contextmanager
def counting_steps() -> Iterator[tuple[Session, list[Event]]]:
    """A session that counts the steps of this process."""
    import torch

    events: list[Event] = []
    session = Session(events.append)
    steps.install(session, torch)
    yield session, events
    steps.uninstall(session)


class NoOptimizers(OptimizerRegistry):
    """What is known of optimizers where none is alive; gradients are as the test says."""

    def __init__(self, *, training: bool = False) -> None:
        self._training = training

    def has_live_optimizer(self) -> bool:
        return False

    def begin_call(self, key: int, first: bool) -> None:
        """Nothing is to be looked at."""

    def find_update(self) -> int:
        return 0

    def has_trained(self) -> bool:
        return self._training
