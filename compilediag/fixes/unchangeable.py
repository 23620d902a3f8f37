"""Reasons why no change can be tried for a finding: what would remove it decides something that
the program's author must decide, or nothing in the record says what it would be."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

_REWRITE = "what removes it is a rewrite of this code, which `fix` leaves to you"
_NO_NUMBER = "the value is not a number, or it decides a branch"
_EVIDENCE = "the evidence is incomplete: a change could not be judged by it"
_CACHE = "about the caches between starts: a trial has empty caches"

_WHY: Mapping[str, str] = MappingProxyType(
    {
        "CD101": f"{_NO_NUMBER}, or other code sees it change",
        "CD102": "what the container holds decides which code runs",
        "CD103": "where the tensor is allocated is for you to move: `fix` moves no code",
        "CD104": f"{_NO_NUMBER}, or other parameters go with it",
        "CD106": "each kind of tensor needs its own graph, and the program passes a different kind",
        "CD107": _NO_NUMBER,
        "CD108": "each length of the container, or set of its keys, is different code",
        "CD109": f"{_NO_NUMBER}, or other code sees it change",
        "CD110": "each callable is different code, and needs its own graph",
        "CD111": "each mode is different code and needs its own graph: one call in each mode "
        "before the loop compiles them there",
        "CD112": "what is compiled anew has to be compiled once, outside: `fix` moves no code",
        "CD114": "different code runs with and without the value",
        "CD115": "the hook has to be registered once, outside: `fix` moves no code",
        "CD116": "what the optimizer holds there is not a number",
        "CD117": "each instance is different code, and needs its own graph",
        "CD118": "the code needs the size as a number",
        "CD120": "none of the values that met has a change of its own",
        "CD150": "no call has compiled it again yet: there is no recompile to remove",
        "CD151": "each variant is needed, and no limit is reached",
        "CD152": "new variants appear without end",
        "CD153": "different terms of the loss are different backward graphs",
        "CD154": "the program itself fails: there are no results to compare with",
        "CD190": "torch does not report what caused the recompile",
        "CD201": _REWRITE,
        "CD202": _REWRITE,
        "CD203": "the call may do more than compute a value",
        "CD204": "the function was kept from being compiled on purpose",
        "CD206": "the `with` has to be entered around the compiled function: `fix` moves no code",
        "CD207": "what the object does to get an attribute cannot be seen in the source",
        "CD209": "what autograd does there is not part of a graph: call it outside the compiled "
        "function",
        "CD210": "the shapes of what the operator returns cannot be derived from its kernel",
        "CD211": "what writes the message is not one of the functions that torch can leave out",
        "CD212": "the draw would happen at another time, or not in every call",
        "CD213": "the error is intended: only a function that returns is compiled",
        "CD214": "the side effect would happen a different number of times",
        "CD290": "no torch operation applies a Python function to each element",
        "CD301": _REWRITE,
        "CD302": "a compile has to happen once; an earlier call would be one more call in the "
        "program",
        "CD303": "what is slow in it has its own finding",
        "CD304": "the cause of the slow steps has its own finding",
        "CD306": "whether the batch of an earlier step is still in use nothing shows",
        "CD307": "loading data is not compiled code; workers save time, which no count shows",
        "CD308": "the order in which parts of the program run is the author's decision",
        "CD406": "the function must be told which rows are real",
        "CD408": "which rows are computed again is part of the algorithm",
        "CD409": "a different number of rows per call leaves no calls to compare",
        "CD611": "about what torch caches between starts: a trial has empty caches",
        "CD613": _CACHE,
        "CD614": _CACHE,
        "CD621": "which values are guarded follows from what the code reads",
        "CD641": "about several ranks: trials run the program as it was started",
        "CD901": "nothing was compiled for a reason outside the source, or on purpose",
        "CD902": _EVIDENCE,
        "CD903": _EVIDENCE,
        "CD904": "the stance, or code that torch never compiles, is the author's decision",
    }
)


_NOT_OF_THE_PROGRAM = frozenset(("CD613", "CD614", "CD641", "CD901", "CD902", "CD903"))
"""About compile caches on the machine, other ranks, what was meant to be compiled ahead of time,
and what was recorded."""


def is_of_the_environment(rule: str) -> bool:
    """What has no candidate there is about something other than the program's own code."""
    return rule in _NOT_OF_THE_PROGRAM


def why_unchangeable(rule: str) -> str | None:
    """Why a finding of a rule can have no candidate; None for rules whose findings always have
    one where the program's text has the usual form."""
    return _WHY.get(rule)
