"""Which loggers carry torch's log artifacts, and which of them the program has silenced."""

from __future__ import annotations

import logging


def artifact_of(logger_name: str) -> str:
    """The artifact of a logger name such as "torch._dynamo.guards.__recompiles", else ""."""
    _, mark, artifact = logger_name.rpartition(".__")
    return artifact if mark else ""


def is_silent(logger: logging.Logger) -> bool:
    """Whether no handler above this logger would receive a DEBUG record of it."""
    return logger.disabled or not logger.propagate or not logger.isEnabledFor(logging.DEBUG)


def silenced(names: list[str]) -> str:
    """The reason to report for loggers that the program silenced."""
    more = f" and {len(names) - 1} more" if len(names) > 1 else ""
    return f"the program silenced torch's logger {names[0]}{more}"


class ArtifactLoggers:
    """The loggers of each artifact; the table of all loggers is read again only when it grew."""

    def __init__(self) -> None:
        self._known = -1
        self._loggers: dict[str, list[logging.Logger]] = {}

    def of(self, artifact: str) -> list[logging.Logger]:
        """Every logger of an artifact that there is by now."""
        table = logging.root.manager.loggerDict
        if len(table) != self._known:
            self._known = len(table)
            self._loggers = {}
            for name in list(table):
                found = artifact_of(name)
                if found and name.startswith("torch."):
                    self._loggers.setdefault(found, []).append(logging.getLogger(name))
        return self._loggers.get(artifact, [])

    def below(self, parent: logging.Logger) -> list[logging.Logger]:
        """The artifact loggers that inherit from one of torch's loggers."""
        prefix = f"{parent.name}."
        names = [name for name in list(logging.root.manager.loggerDict) if name.startswith(prefix)]
        return [logging.getLogger(name) for name in names if artifact_of(name)]
