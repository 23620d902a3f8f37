"""The call of the program's own above compiled code: its text, and what it passes for what."""

import functools
import sys
import types
from typing import Any

import pytest

from compilediag_harness.blame import user_calls
from compilediag_harness.blame.source_locations import is_own, is_own_frame
from compilediag_harness.blame.user_calls import find_user_call
from compilediag_harness.torch_internals.torch_compiles import FrameBeingCompiled
from compilediag_harness.wire import UserCall

exact = pytest.mark.skipif(not user_calls.HAS_POSITIONS, reason="Python 3.10 has lines only")
"""For calls that are not alone on their line."""


def _entered(values: dict[str, Any]) -> UserCall:
    """What is recorded where the caller is compiled with these local variables."""
    compiled = sys._getframe(1)  # pyright: ignore[reportPrivateUsage]
    return find_user_call(FrameBeingCompiled(compiled.f_code, values, compiled.f_back))


def forward(x: Any, mask: Any = None, *rest: Any, scale: float = 1.0, **more: Any) -> UserCall:
    return _entered(dict(locals()))


class Model:
    def __init__(self) -> None:
        self.weights = object()

    def forward(self, x: Any, mask: Any = None) -> UserCall:
        return _entered(dict(locals()))

    def __enter__(self) -> UserCall:
        return _entered(dict(locals()))

    def __exit__(self, *error: object) -> None: ...

    def __matmul__(self, other: object) -> UserCall:
        return _entered(dict(locals()))


def _told(call: UserCall) -> tuple[str, dict[str, str]]:
    return call.text, dict(call.arguments)


@exact
def test_positions_and_keywords() -> None:
    """Parameters of each kind with the expressions passed, named as guards name them."""
    a, b = object(), object()
    batch = {"y": b}
    assert forward(a).defined_at == test_positions_and_keywords.__code__.co_firstlineno
    assert _told(forward(a, batch["y"], b, scale=len("ab"), extra=a)) == (
        'forward(a, batch["y"], b, scale=len("ab"), extra=a)',
        {
            "x": "a",
            "mask": 'batch["y"]',
            "rest[0]": "b",
            "scale": 'len("ab")',
            "more['extra']": "a",
        },
    )


@exact
def test_many_lines() -> None:
    """A call over several lines is quoted on one, as a formatter would join it."""
    a = object()
    found = forward(a, mask=[1, 2])
    assert _told(found) == ("forward(a, mask=[1, 2])", {"x": "a", "mask": "[1, 2]"})


@exact
def test_nested_calls() -> None:
    """Of several calls on a line it is the one that runs."""
    a = object()

    def keep(value: UserCall, *_: object) -> UserCall:
        return value

    assert _told(keep(forward(id(a)), len("ä"), forward(a))) == ("forward(id(a))", {"x": "id(a)"})
    assert _told(keep(*[forward(item, "ä") for item in (a,)])) == (
        'forward(item, "ä")',
        {"x": "item", "mask": '"ä"'},
    )


def attend(key: Any, password: str = "", token_type_ids: Any = None) -> UserCall:
    return _entered(dict(locals()))


@exact
def test_secrets() -> None:
    """The text of a literal that a parameter's name calls a secret is not recorded, neither as an
    argument nor in the call; the name of a variable is no secret, whatever it is passed for."""
    k, given, types = object(), "hunter2", object()
    assert _told(attend(k, given, token_type_ids=types)) == (
        "attend(k, given, token_type_ids=types)",
        {"key": "k", "password": "given", "token_type_ids": "types"},
    )
    for found in (
        attend(k, "hunter2"),
        attend(k, password="hunter2"),
        attend(k, password=f"hunter{2}"),
        attend(k, "hunter2".strip()),
    ):
        assert dict(found.arguments) == {"key": "k"}
        assert "hunter" not in found.text
        assert found.text.startswith("attend(k, ")
    held = {"password": given}
    assert _told(attend(k, held["password"]))[1]["password"] == 'held["password"]'


@exact
def test_starred() -> None:
    """What is unpacked of a plain tuple or dict is named by its items; behind what is unpacked of
    another kind no position is known, keywords are."""
    a, b, more = object(), object(), {"scale": 2.0, "extra": object()}
    pair = (a, b)
    assert _told(forward(*pair, **more))[1] == {
        "x": "pair[0]",
        "mask": "pair[1]",
        "scale": "more['scale']",
        "more['extra']": "more['extra']",
    }
    assert _told(forward(a, *iter([b]), a, scale=2.0))[1] == {"x": "a", "scale": "2.0"}
    assert _told(forward(*[a, b]))[1] == {}
    assert _told(forward(a, **dict(more)))[1] == {"x": "a"}


@exact
def test_methods() -> None:
    """`self` is the object before the dot, unless the method is called on its class."""
    model, a = Model(), object()
    assert _told(model.forward(a)) == ("model.forward(a)", {"x": "a"})
    assert _told(Model.forward(model, a))[1] == {"self": "model", "x": "a"}
    assert _told(model.forward(id(a), mask=model.weights))[1] == {
        "x": "id(a)",
        "mask": "model.weights",
    }


@exact
def test_what_has_no_call() -> None:
    """An operator and a `with` are no calls in the source: their line is quoted."""
    model = Model()
    found = model @ model
    assert _told(found) == ("found = model @ model", {})
    with model as entered:
        pass
    assert entered.text == "with model as entered:"


@exact
def test_lambda_comprehension_decorator() -> None:
    """The innermost frame that runs: a lambda, a generator, the statement of a decorator. A list's
    comprehension is a part of its function, whatever it is in this Python."""
    a = object()
    (of_list,) = [forward(item) for item in [a]]
    told = (of_list.function, _told(of_list)[1])
    assert told == ("test_lambda_comprehension_decorator", {"x": "item"})
    of_lambda = next(map(lambda y: forward(y), [a]))  # noqa: C417, PLW0108 - a lambda's frame
    assert (of_lambda.function, _told(of_lambda)[1]) == ("<lambda>", {"x": "y"})
    of_generator = next(forward(item) for item in [a])
    assert (of_generator.function, _told(of_generator)[1]) == ("<genexpr>", {"x": "item"})

    @forward
    def decorated() -> None: ...

    assert isinstance(decorated, UserCall)
    assert decorated.text == "@forward"


@exact
def test_partial_shifts() -> None:
    """`functools.partial` leaves no frame: what would be bound to another parameter is not told."""
    a, flag = object(), object()
    partial = functools.partial(forward, flag)
    assert _told(partial(a))[1] == {"mask": "a"}  # the object that the parameter got
    assert _told(partial(id(a)))[1] == {}


def test_without_positions(monkeypatch: pytest.MonkeyPatch) -> None:
    """Python 3.10: the only call that begins in the line; of several none, and their line is
    quoted."""
    a = object()
    monkeypatch.setattr(user_calls, "HAS_POSITIONS", False)
    found = forward(a, mask=a)
    two = forward(id(a))
    assert _told(found) == ("forward(a, mask=a)", {"x": "a", "mask": "a"})
    assert _told(two) == ("two = forward(id(a))", {})


@exact
def test_what_is_left_of_a_function() -> None:
    """After a graph break the rest of a function is entered by the function itself: the user's call
    is that of the function."""
    rest = types.FunctionType(
        forward.__code__.replace(co_name="torch_dynamo_resume_in_broken_at_3"), globals()
    )
    rest.__kwdefaults__ = forward.__kwdefaults__
    rest.__defaults__ = forward.__defaults__

    def broken(x: object) -> Any:
        return rest(x)

    found = broken(object())
    assert _told(found) == ("broken(object())", {})
    assert found.function == "test_what_is_left_of_a_function"


def test_whose_files(monkeypatch: pytest.MonkeyPatch) -> None:
    """Installed files, the standard library and ours are not the program's, but that of
    `__main__`."""
    installed = "/venv/lib/python3.11/site-packages/trainer/__main__.py"
    assert is_own("/work/train.py")
    assert not is_own(installed)
    assert not is_own(functools.__file__)
    assert not is_own(user_calls.__file__)
    assert not is_own("<frozen importlib._bootstrap>")
    assert not is_own("/tmp/torchinductor_ann/ab/cabc.py")
    kernel = "t5/ct5wnelfeyzmk6wm5td2pvzlhlog3xmkqt6oxevbhctvdcltoxve.main.so"
    assert not is_own(f"/tmp/compilediag-caches-a1/TORCHINDUCTOR/{kernel}")
    assert not is_own("/x/t5/ct5wnelfeyzmk6wm5td2pvzlhlog3xmkqt6oxevbhctvdcltoxve.py")
    monkeypatch.setattr(sys.modules["__main__"], "__file__", installed, raising=False)
    assert is_own(installed)


def test_generated_code() -> None:
    """A function that a library makes of text has no file; code of `python -c` is the
    program's."""
    source = "import sys\nframe = sys._getframe()"
    for name, own in (("__main__", True), ("attr._make", False)):
        scope: dict[str, Any] = {"__name__": name}
        exec(compile(source, "<string>", "exec"), scope)
        assert is_own_frame(scope["frame"]) is own
