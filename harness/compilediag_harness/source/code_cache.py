"""Functions of a code object whose answers are kept for as long as it lives."""

from __future__ import annotations

import functools
import types
from collections.abc import Callable
from typing import Any, Concatenate, ParamSpec, TypeVar

from compilediag_harness.base.weak_by_identity import WeakByIdentity

Rest = ParamSpec("Rest")
Answer = TypeVar("Answer")
_OfCode = Callable[Concatenate[types.CodeType, Rest], Answer]


def cached_by_code(function: _OfCode[Rest, Answer]) -> _OfCode[Rest, Answer]:
    """As `functools.cache`, for a function whose first argument is a code object, which is not kept
    alive."""
    kept = WeakByIdentity[types.CodeType, dict[Any, Answer]]()

    @functools.wraps(function)
    def answer(code: types.CodeType, /, *args: Rest.args, **kwargs: Rest.kwargs) -> Answer:
        answers = kept.setdefault(code, {})
        rest = (args, *kwargs.items())
        if rest not in answers:
            answers[rest] = function(code, *args, **kwargs)
        return answers[rest]

    return answer
