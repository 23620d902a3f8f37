"""Functions of a code object whose answers are kept."""

from __future__ import annotations

import functools
import types
from collections.abc import Callable
from typing import Concatenate, ParamSpec, TypeVar

Rest = ParamSpec("Rest")
Answer = TypeVar("Answer")
_OfCode = Callable[Concatenate[types.CodeType, Rest], Answer]


def cached_by_code(
    maxsize: int,
) -> Callable[[_OfCode[Rest, Answer]], _OfCode[Rest, Answer]]:
    """As `functools.lru_cache`, for a function whose first argument is a code object. Code that
    Dynamo generates may hold constants that have no hash, and then has none: its answer is
    computed each time."""

    def decorate(function: _OfCode[Rest, Answer]) -> _OfCode[Rest, Answer]:
        cached = functools.lru_cache(maxsize)(function)

        @functools.wraps(function)
        def answer(code: types.CodeType, /, *args: Rest.args, **kwargs: Rest.kwargs) -> Answer:
            try:
                hash(code)
            except TypeError:
                return function(code, *args, **kwargs)
            return cached(code, *args, **kwargs)  # pyright: ignore[reportArgumentType, reportCallIssue]

        return answer

    return decorate
