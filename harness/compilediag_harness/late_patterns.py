"""Regular expressions that are compiled when they are first used.

Compiling one takes up to a millisecond, a tenth of what Python itself needs to start, and most
processes need few of those that are written down. What stands here for a `re.Pattern` has all of
its methods; `re.sub` and its like take it for no pattern.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

__all__ = ["late"]

_MEMBERS = tuple(name for name in dir(re.Pattern) if not name.startswith("_"))


class _Late:
    """A pattern that is not compiled yet, or the members of one that is: a call then costs what it
    costs of the pattern itself."""

    def __init__(self, expression: str | bytes, flags: int = 0) -> None:
        self._given: tuple[Any, int] = expression, flags

    def __getattr__(self, name: str) -> Any:
        """Asked for the first member, as none lies in the object before.

        Two threads that come here at once compile the same.
        """
        if name not in _MEMBERS:
            raise AttributeError(name)
        compiled: re.Pattern[Any] = re.compile(*self._given)
        vars(self).update((each, getattr(compiled, each)) for each in _MEMBERS)
        return getattr(compiled, name)


if TYPE_CHECKING:
    from re import compile as late
else:
    late = _Late
