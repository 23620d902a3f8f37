"""Dataclasses whose methods are written late are dataclasses to everybody who asks."""

from __future__ import annotations

import copy
import dataclasses
import pickle
from dataclasses import field
from typing import Any

import msgspec
import pytest

from compilediag_harness import lazy_dataclasses, wire
from compilediag_harness.lazy_dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Late:
    """What it is."""

    count: int
    name: str = "x"
    parts: tuple[int, ...] = field(default_factory=tuple)

    @property
    def doubled(self) -> int:
        return 2 * self.count


@dataclass(frozen=True, slots=True)
class Unprinted:
    """Says of itself what it likes."""

    count: int

    def __repr__(self) -> str:
        return "mine"


@dataclasses.dataclass(frozen=True, slots=True)
class Plain:
    """The same as `Late`, made by the standard library."""

    count: int
    name: str = "x"
    parts: tuple[int, ...] = field(default_factory=tuple)


def test_objects_are_like_those_of_the_standard_library() -> None:
    """Made, compared, hashed and printed; and with defaults."""
    late, plain = Late(1, parts=(2,)), Plain(1, parts=(2,))
    assert repr(late) == repr(plain).replace("Plain", "Late")
    assert hash(late) == hash(plain) == hash(Late(1, "x", (2,)))
    assert late == Late(1, "x", (2,)) != Late(2)
    assert late != plain
    assert (late.doubled, Late.__doc__) == (2, "What it is.")


def test_methods_are_written_when_they_are_needed() -> None:
    """Nothing is compiled for a class of which there is no object, nor for what is not asked."""

    @dataclass(frozen=True, slots=True)
    class Unused:
        count: int

    later = vars(Unused)["__init__"], vars(Unused)["__eq__"]
    assert Unused(1).count == 1
    assert vars(Unused)["__init__"] is not later[0]
    assert vars(Unused)["__eq__"] is later[1]
    assert Unused(1) == Unused(1)
    assert vars(Unused)["__eq__"] is not later[1]


def test_fields_are_known_and_cannot_be_changed() -> None:
    """`fields`, `replace`, patterns; a frozen object stays what it is."""
    assert dataclasses.is_dataclass(Late)
    assert [each.name for each in dataclasses.fields(Late)] == ["count", "name", "parts"]
    assert dataclasses.replace(Late(1), count=3) == Late(3)
    match Late(4, "y"):
        case Late(count, name):
            assert (count, name) == (4, "y")
    late: Any = Late(1)
    with pytest.raises(dataclasses.FrozenInstanceError):
        late.count = 2
    with pytest.raises(dataclasses.FrozenInstanceError):
        del late.count
    with pytest.raises(AttributeError):
        object.__setattr__(late, "other", 1)
    with pytest.raises(TypeError, match="missing 1 required"):
        late.__class__()


def test_objects_travel() -> None:
    """Copied, pickled, and made by msgspec, before any method of the class was written too."""

    @dataclass(frozen=True, slots=True)
    class Read:
        count: int
        parts: tuple[int, ...] = ()

    assert msgspec.convert({"count": 2, "parts": [1]}, Read) == Read(2, (1,))
    with pytest.raises(msgspec.ValidationError):
        msgspec.convert({"parts": []}, Read)
    late = Late(1, "y", (2,))
    assert pickle.loads(pickle.dumps(late)) == copy.deepcopy(late) == copy.copy(late) == late


def test_a_method_of_the_class_stays() -> None:
    """What is described is never replaced."""
    assert repr(Unprinted(1)) == "mine"
    assert Unprinted(1) == Unprinted(1)


def test_what_is_not_made_here_is_refused() -> None:
    """Other options, and classes that inherit from a dataclass."""
    made: Any = lazy_dataclasses.dataclass
    with pytest.raises(TypeError, match="frozen"):
        made(frozen=False, slots=True)
    with pytest.raises(TypeError, match="inherits"):
        made(frozen=True, slots=True)(type("Child", (Late,), {}))


@pytest.mark.parametrize("kind", wire.KINDS.values(), ids=lambda kind: kind.__name__)
def test_every_event_can_be_written(kind: type[Any]) -> None:
    """The methods of each event are those that the standard library writes for it."""
    values = [f"v{place}" for place, _ in enumerate(dataclasses.fields(kind))]
    event = kind(*values)
    assert [getattr(event, each.name) for each in dataclasses.fields(kind)] == values
    assert event == kind(*values)
    assert event != kind(*values[:-1], "other")
    assert repr(event).startswith(f"{kind.__qualname__}(")
