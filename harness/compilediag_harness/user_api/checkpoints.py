"""Checkpoints that the program writes, seen as spans without a word of it: `torch.save` and
`torch.distributed.checkpoint`. What is wrapped is what those call, in torch's own modules: a name
that the program imported itself is seen as well, and Dynamo meets nothing it did not meet before.
"""

from __future__ import annotations

import contextlib
from contextlib import AbstractContextManager
from typing import Any

from compilediag_harness.torch_internals import torch_api
from compilediag_harness.user_api import spans

NAMES = ("checkpoint", "checkpointing", "save_checkpoint")
"""Spans of the program that are a checkpoint already: what they save is not counted again."""

_SAVES = ("_save", "_legacy_save")
_DISTRIBUTED_SAVES = ("_save_state_dict", "async_save")

_handle = spans.span(NAMES[0])


def install() -> None:
    """Watches `torch.save`; call it when torch is imported. Stays for ever."""
    torch_api.around_saves("torch.serialization", _SAVES, _around)


def saver_imported() -> None:
    """Watches `torch.distributed.checkpoint`, whose module has just been imported."""
    torch_api.around_saves(torch_api.DISTRIBUTED_SAVER, _DISTRIBUTED_SAVES, _around)


def _around() -> AbstractContextManager[Any]:
    if any(name in NAMES for name in spans.open_names()):
        return contextlib.nullcontext()
    return _handle
