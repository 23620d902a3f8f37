"""Every error raised on purpose, with its exit code; docs/howto/troubleshooting.md has each."""

from __future__ import annotations

EXIT_OK = 0
EXIT_UNUSABLE = 1
EXIT_USAGE = 2
EXIT_GATE = 3
EXIT_UNDECIDED = 4
EXIT_INTERNAL = 70
EXIT_INTERRUPTED = 130
"""128 + SIGINT, as a shell would report it."""
EXIT_BROKEN_PIPE = 141
"""128 + SIGPIPE: the reader of stdout went away."""


class CompilediagError(Exception):
    """Base of every error raised on purpose: `message` says what happened and what to do."""

    exit_code = EXIT_INTERNAL


class UsageError(CompilediagError):
    """The command line or an input cannot be used as given."""

    exit_code = EXIT_USAGE


class ReceiptNotFound(UsageError):
    """There is no receipt where one was looked for."""


class ReceiptUnreadable(UsageError):
    """A file is not a receipt this version can read."""


class ReceiptTooNew(ReceiptUnreadable):
    """The receipt was written by a newer major version."""


class ReceiptContradictory(ReceiptUnreadable):
    """A receipt contradicts itself; nothing is concluded from it."""


class OutputUnwritable(UsageError):
    """The output directory cannot be created or written."""


class ConfigurationsNotComparable(UsageError):
    """Two receipts differ in a field that must be equal for a comparison."""


class BaselineUnreadable(UsageError):
    """A file is not a baseline this version can use; it is left as it is."""


class ExtensionMissing(UsageError):
    """The requested feature belongs to an extension that is not installed."""


class ReproImpossible(UsageError):
    """No small program can show a finding; the message is the reason."""
