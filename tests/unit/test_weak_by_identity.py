"""Facts of the program's objects, which are neither kept alive nor compared."""

from compilediag_harness.base.object_graph import WeakByIdentity, cache_by_code


class Opinionated:
    """What a tensor, or a module of tensordict, makes of `==`."""

    __hash__ = None  # type: ignore[assignment]

    def __eq__(self, other: object) -> bool:
        raise RuntimeError("compared")


def test_objects_are_told_apart_by_identity() -> None:
    first, second = Opinionated(), Opinionated()
    facts = WeakByIdentity[Opinionated, int]()
    facts[first] = 1
    facts[second] = 2
    facts[first] = 3
    assert (facts.get(first), facts.get(second)) == (3, 2)
    assert facts.setdefault(second, 4) == 2
    assert [value for _, value in facts.items()] == [3, 2]


def test_what_is_gone_is_forgotten() -> None:
    """Another object may have its address."""
    facts = WeakByIdentity[Opinionated, int]()
    for number in range(3):
        one = Opinionated()
        assert facts.get(one) is None
        facts[one] = number
        del one
        assert len(facts) == 0


def code_with(constant: str) -> object:
    namespace: dict[str, object] = {}
    exec(f"def f(x): return {constant!r}", namespace)
    return namespace["f"]


def test_answers_of_code_go_with_it() -> None:
    """Code that is equal is not the same: it may stand in another file."""
    asked: list[int] = []

    @cache_by_code
    def size(code: object, more: int) -> int:
        asked.append(more)
        return len(code.co_code) + more  # type: ignore[attr-defined]

    first, second = code_with("a"), code_with("a")
    for function in (first, second, first, second):
        size(function.__code__, 1)  # type: ignore[attr-defined]
    assert asked == [1, 1]
    size(first.__code__, 2)  # type: ignore[attr-defined]
    assert asked == [1, 1, 2]
