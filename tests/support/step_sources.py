"""What is known of optimizers in a program without any."""

from __future__ import annotations


class NoOptimizers:
    """None is alive, none steps, and gradients are as the test says."""

    def __init__(self, *, training: bool = False) -> None:
        self._training = training

    def expected(self) -> bool:
        return False

    def call_begins(self, key: int, first: bool) -> None:
        """Nothing is to be looked at."""

    def updated(self) -> int:
        return 0

    def training(self) -> bool:
        return self._training
