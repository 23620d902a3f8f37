"""Dataclasses whose methods are written late are dataclasses to everybody who asks."""

from __future__ import annotations

import copy
import dataclasses
import importlib
import inspect
import pickle
import pprint
from dataclasses import field
from pathlib import Path
from typing import Any, ClassVar

import msgspec
import pytest

import compilediag
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


@dataclass(slots=True)
class Open:
    """Can be changed, and counts how often it was made."""

    count: int
    parts: list[int] = field(default_factory=list[int])
    made: int = field(init=False, compare=False)

    def __post_init__(self) -> None:
        self.made = 1


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


def test_fields_may_have_any_name() -> None:
    """Names that the written method itself uses are fields like others."""

    @dataclass(frozen=True, slots=True)
    class Named:
        put: int
        absent: int = 1
        init: tuple[int, ...] = field(default_factory=lambda: (2,))

    assert repr(Named(0)).endswith("Named(put=0, absent=1, init=(2,))")
    assert Named(0, init=(3,)).init == (3,)


def test_one_that_is_not_frozen_can_be_changed() -> None:
    """It has no hash, as it may not lie in a set; a field may be none of the arguments."""
    one, other = Open(1), Open(1, [])
    assert (one, one.made, repr(one)) == (other, 1, "Open(count=1, parts=[], made=1)")
    one.count = 2
    one.parts.append(3)
    assert one != other
    assert copy.copy(one) == pickle.loads(pickle.dumps(one)) == Open(2, [3])
    with pytest.raises(TypeError, match="unhashable"):
        hash(one)
    with pytest.raises(AttributeError):
        one.other = 1  # pyright: ignore[reportAttributeAccessIssue]


def test_what_is_no_argument_has_its_default() -> None:
    """A value, or one made for each object."""

    @dataclass(slots=True)
    class Counted:
        name: str
        count: int = field(init=False, default=3)
        parts: list[int] = field(init=False, default_factory=lambda: [1])

    one, other = Counted("a"), Counted("b")
    one.parts.append(2)
    assert (one.count, one.parts, other.parts) == (3, [1, 2], [1])
    with pytest.raises(TypeError, match="positional"):
        Counted("a", 1)  # pyright: ignore[reportCallIssue]


def test_methods_are_written_when_they_are_needed() -> None:
    """Nothing is compiled for a class of which there is no object, nor for what is not asked."""

    @dataclass(frozen=True, slots=True)
    class Unused:
        count: int

    found_later = vars(Unused)["__dataclass_fields__"]
    assert not isinstance(found_later, dict)
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
    """Other options, classes that inherit from a dataclass, and what is no plain field."""
    made: Any = lazy_dataclasses.dataclass
    with pytest.raises(TypeError, match="slots"):
        made(frozen=True, slots=False)
    with pytest.raises(TypeError, match="inherits"):
        made(frozen=True, slots=True)(type("Child", (Late,), {}))

    @dataclass(frozen=True, slots=True)
    class Shared:
        everywhere: ClassVar[int]
        count: int

    @dataclass(frozen=True, slots=True)
    class Named:
        count: int = field(kw_only=True)

    for kind in (Shared, Named):
        with pytest.raises(TypeError, match="is not made here"):
            kind(count=1)


def test_every_class_of_ours_is_sound() -> None:
    """`dataclasses`, which looks into a class late, finds no fault with any."""
    root = Path(compilediag.__file__).parent
    checked = 0
    for path in root.rglob("*.py"):
        if "lazy_dataclasses import dataclass\n" not in path.read_text(encoding="utf-8"):
            continue
        name = ".".join(path.relative_to(root.parent).with_suffix("").parts)
        for kind in vars(importlib.import_module(name)).values():
            if (
                isinstance(kind, type)
                and kind.__module__ == name
                and dataclasses.is_dataclass(kind)
            ):
                slots = vars(kind)["__slots__"]
                assert tuple(each.name for each in dataclasses.fields(kind)) == slots
                checked += 1
    assert checked > 80


def test_printing_and_copying_ask_what_dataclasses_keeps() -> None:
    """`pprint` reads how a class was made; `copy.replace` of Python 3.13 calls a method."""
    late: Any = Late(1)
    late_told, plain_told = (inspect.signature(kind).parameters for kind in (Late, Plain))
    assert list(late_told) == list(plain_told)
    for name, told in late_told.items():
        assert told.annotation == plain_told[name].annotation
    assert pprint.pformat(late, width=20) == repr(late)
    assert late.__replace__(count=2) == Late(2)


@pytest.mark.parametrize("kind", wire.KINDS.values(), ids=lambda kind: kind.__name__)
def test_every_event_can_be_written(kind: type[Any]) -> None:
    """The methods of each event are those that the standard library writes for it."""
    values = [f"v{place}" for place, _ in enumerate(dataclasses.fields(kind))]
    event = kind(*values)
    assert [getattr(event, each.name) for each in dataclasses.fields(kind)] == values
    assert event == kind(*values)
    assert event != kind(*values[:-1], "other")
    assert repr(event).startswith(f"{kind.__qualname__}(")
