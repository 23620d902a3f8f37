"""Stand-ins for modules that the libraries of a short command import and hardly use.

A command that answers in 50 milliseconds spends most of them on imports. What stands in for a
module here has the few names that are used at each start; whoever asks it for more gets the real
module's, which takes its place then.
"""

from __future__ import annotations

import importlib
import os
import sys
import types
import typing
from collections.abc import Callable

_OF_MSGSPEC = ("get_type_hints", "NotRequired", "Required")
"""What msgspec takes from `typing_extensions` where it is there; from 3.11 on `typing` has it."""


def put_in_place() -> None:
    """For a process of our own only, before it imports click and msgspec. What the modules cost:
    `inspect`, with all it imports, a tenth of a command; `typing_extensions` 4 milliseconds;
    `platform` one, `gettext` and `textwrap` half of one each, `statistics` 3 of `analyze`."""
    _stand_in("inspect", cleandoc=_cleandoc)  # click: for the help of each option
    _stand_in("gettext", gettext=_untranslated, ngettext=_untranslated_number)  # click
    _stand_in("textwrap")  # msgspec: for schemas
    _stand_in("statistics", fmean=_called("fmean"), median=_called("median"))  # of runs with steps
    if hasattr(os, "uname"):
        _stand_in("platform", system=_system)  # uuid, which both import: whether this is AIX
    if sys.version_info >= (3, 11):
        _stand_in("typing_extensions", **{name: getattr(typing, name) for name in _OF_MSGSPEC})


_stand_ins: dict[str, types.ModuleType] = {}


def _stand_in(name: str, **known: object) -> None:
    if name in sys.modules:
        return

    def of_module(attribute: str) -> object:
        if attribute.startswith("__"):  # asked by the import system, not by who wants the module
            raise AttributeError(attribute)
        return getattr(_module(name), attribute)

    module = _stand_ins[name] = sys.modules[name] = types.ModuleType(name)
    module.__dict__.update(known, __getattr__=of_module)


def _module(name: str) -> types.ModuleType:
    """The module itself, which has its place from now on."""
    if sys.modules.get(name) is _stand_ins[name]:
        del sys.modules[name]
    return importlib.import_module(name)


def _called(name: str) -> Callable[..., object]:
    """The function of `statistics`, which is imported when somebody calls it."""

    def called(*given: object, **named: object) -> object:
        return getattr(_module("statistics"), name)(*given, **named)

    return called


def _cleandoc(text: str) -> str:
    """`inspect.cleandoc`: of one line it only takes the blanks before it."""
    if "\n" in text or "\t" in text:
        return _module("inspect").cleandoc(text)
    return text.lstrip()


def _untranslated(message: str) -> str:
    """`gettext.gettext`: nobody has translated click for us."""
    return message


def _untranslated_number(one: str, several: str, count: int) -> str:
    """`gettext.ngettext`."""
    return one if count == 1 else several


def _system() -> str:
    """`platform.system`."""
    return os.uname().sysname
