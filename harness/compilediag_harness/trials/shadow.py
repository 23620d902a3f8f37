"""A compiled call beside the same call eager, on copies of what it is given: twice as it is, once
in float64. What differs is then the compiled code's own, not what came before the call."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Generator
from dataclasses import dataclass, field
from typing import Any

from compilediag_harness.torch_internals.torch_open_calls import CalledWith
from compilediag_harness.trials import randomness
from compilediag_harness.trials.answers import AnswerReader
from compilediag_harness.trials.copies import CannotCopy, Copier
from compilediag_harness.wire import Answer, ComparedValue, clip

_Answers = dict[str, Answer]

MAX_REASON = 240


@dataclass(slots=True)
class Shadow:
    """The eager answers of a call that is about to be made compiled."""

    call: CalledWith
    eager: _Answers = field(default_factory=dict[str, Answer])
    again: _Answers = field(default_factory=dict[str, Answer])
    exact: _Answers = field(default_factory=dict[str, Answer])
    """In float64; empty where that cannot be had, or random numbers are drawn."""
    complete: bool = True
    floating: bool = False
    random_after: object = None
    """The generators after the eager call."""
    problem: str | None = None
    """Why there is nothing to compare with."""


def made_for(torch: Any, reader: AnswerReader, call: CalledWith) -> Shadow:
    """The shadow of a call that begins; the generators stay where they are."""
    shadow = Shadow(call)
    try:
        before = randomness.digests(torch)
        with _eager(torch):
            shadow.eager = _answers(torch, reader, shadow, double=False)
            shadow.random_after = randomness.digests(torch)
        with _eager(torch):
            shadow.again = _answers(torch, reader, shadow, double=False)
    except CannotCopy as error:
        shadow.problem = clip(str(error), MAX_REASON)
        return shadow
    except Exception as error:  # of the program, on copies
        text = str(error).partition("\n")[0]
        shadow.problem = clip(f"eager, on copies: {type(error).__name__}: {text}", MAX_REASON)
        return shadow
    if shadow.floating and shadow.random_after == before:
        # Random numbers of another type are others.
        with contextlib.suppress(Exception), _eager(torch):
            shadow.exact = _answers(torch, reader, shadow, double=True)
            if randomness.digests(torch) != before:
                shadow.exact = {}
    return shadow


def compared(
    reader: AnswerReader, shadow: Shadow, result: Any
) -> tuple[int, tuple[ComparedValue, ...], bool]:
    """After the call: how many values were compared, those that are not equal bit for bit or have
    no content that can be, and whether these are all."""
    answers, complete = _read(reader, result, shadow.call)
    found: list[ComparedValue] = []
    count = 0
    for path in {**shadow.eager, **answers}:
        ours, theirs = answers.get(path), shadow.eager.get(path)
        if ours is None or theirs is None:
            found.append(ComparedValue(path, _one(ours), _one(theirs)))
            continue
        stable = _is_same(theirs, shadow.again.get(path))
        count += 1
        if not _is_same(ours, theirs) or not stable:
            exact = _one(shadow.exact.get(path))
            found.append(ComparedValue(path, (ours,), (theirs,), exact, stable))
    return count, tuple(found), complete and shadow.complete


def _one(answer: Answer | None) -> tuple[Answer, ...]:
    return () if answer is None else (answer,)


def _is_same(one: Answer, other: Answer | None) -> bool:
    """A value without a digest is too large to be read whole, or of a kind with no content."""
    if one.kind == "other" and not one.digest:
        return other is not None and one == other
    return one == other


@contextlib.contextmanager
def _eager(torch: Any) -> Generator[None]:
    """Nothing is compiled, and the generators are put back."""
    python, numpy = sys.modules.get("random"), sys.modules.get("numpy.random")
    states = python and python.getstate(), numpy and numpy.get_state()
    try:
        with (
            torch.random.fork_rng(),
            torch.no_grad(),
            torch.compiler.set_stance("force_eager"),
        ):
            yield
    finally:
        if python is not None:
            python.setstate(states[0])
        if numpy is not None:
            numpy.set_state(states[1])


def _answers(torch: Any, reader: AnswerReader, shadow: Shadow, *, double: bool) -> _Answers:
    copier = Copier(torch, double=double)
    call = copier.call(shadow.call)
    shadow.floating |= copier.floating
    value = call.function(*call.args, **call.kwargs)
    found, complete = _read(reader, value, call)
    shadow.complete &= complete
    return found


def _read(reader: AnswerReader, value: Any, call: CalledWith) -> tuple[_Answers, bool]:
    """What the call returned, and what it left in its arguments and in the buffers of its
    module."""
    parts = {"": value, "argument": call.args, "argument ": call.kwargs}
    buffers = getattr(getattr(call.function, "__self__", None), "named_buffers", None)
    if buffers is not None:
        parts["buffer "] = dict(buffers())
    found: _Answers = {}
    complete = True
    for name, part in parts.items():
        answers, whole = reader.read(part)
        # Of arguments only tensors can have been written.
        complete = complete and (whole or bool(name))
        found.update((f"{name}{each.path}", each) for each in answers if not name or _is_data(each))
    return found, complete


def _is_data(answer: Answer) -> bool:
    return answer.kind == "tensor"
