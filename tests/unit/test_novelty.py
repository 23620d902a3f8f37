"""What is new at a recompile: one value, a combination of known ones, or not known."""

from dataclasses import replace

import pytest
from timelines import recompile

from compilediag.diagnosis.causes.run_causes import Explanation, explain_recompile, list_causes
from compilediag.timeline.timeline import Recompile
from compilediag_harness.wire import EntryDiff, FalseGuard, GuardFacts, Location

LINE = Location("/home/user/app.py", 12, "forward")
ARGUMENT = GuardFacts(root="argument")
KEYS = "DispatchKeySet(CPU, BackendSelect, ADInplaceOrView, AutogradCPU)"
AUTOCAST_KEYS = "DispatchKeySet(CPU, BackendSelect, ADInplaceOrView, AutogradCPU, AutocastCPU)"
INFERENCE_KEYS = "DispatchKeySet(CPU, BackendSelect, ADInplaceOrView)"


def flag(name: str, *, novel: bool | None, actual: str = "True") -> FalseGuard:
    """A global flag that was compiled for with another value."""
    expected = "False" if actual == "True" else "True"
    source = f"G['{name}']"
    text = f"{source} == {expected}"
    leaf = f"{expected.upper()}_MATCH"
    facts = GuardFacts(root="global")
    return FalseGuard(source, leaf, text, None, actual, LINE, facts=facts, novel=novel)


def tensor(name: str, what: str, *change: str, novel: bool | None = True) -> FalseGuard:
    """Something about an argument tensor."""
    text = f"tensor 'L['{name}']' {what} mismatch. expected {change[0]}, actual {change[1]}"
    if what == "requires_grad":
        text = f"tensor 'L['{name}']' {what} mismatch. expected {what}={int(change[0] == 'True')}"
    source = f"L['{name}']"
    return FalseGuard(source, "TENSOR_MATCH", text, *change, LINE, facts=ARGUMENT, novel=novel)


def held(source: str, leaf: str, text: str, *values: str | None, novel: bool = True) -> FalseGuard:
    """Something about a global: what was expected, and what it is now."""
    facts = GuardFacts(root="global")
    return FalseGuard(source, leaf, text, *values, LINE, None, facts, novel=novel)


def state(*parts: str, novel: bool | None = True) -> FalseGuard:
    """Parts of torch's global state."""
    text = f"GLOBAL_STATE changed: {' '.join(parts)} "
    return FalseGuard("L", "GLOBAL_STATE", text, novel=novel)


def found(*entries: tuple[FalseGuard, ...]) -> Explanation:
    """Why a recompile happened that found these entries, most recently used first."""
    return explain_recompile(recompile_of(*entries))


def recompile_of(*entries: tuple[FalseGuard, ...], compile_id: str = "0/9") -> Recompile:
    diffs = (EntryDiff(f"0/{len(entries) - at}", guards) for at, guards in enumerate(entries, 1))
    return replace(recompile(compile_id), entries=tuple(diffs), reasons=())


def named(*entries: tuple[FalseGuard, ...]) -> list[tuple[str, str]]:
    return [(cause.rule, cause.variable) for cause in found(*entries).causes]


A, B = flag("a", novel=False), flag("b", novel=False)


class TestCombinations:
    """Values that are all known, and that no entry accepts together."""

    def test_two_flags(self) -> None:
        """(a, b) was compiled for as (0, 0), (1, 0) and (0, 1); now both are set."""
        (cause,) = found((A,), (B,), (A, B)).causes
        assert named((B,), (A,), (A, B)) == [("CD120", "a, b")]
        assert (cause.rule, cause.variable) == ("CD120", "a, b")
        assert (cause.actual, cause.primary, cause.location) == ("a=True, b=True", True, LINE)
        assert [(part.rule, part.variable) for part in cause.parts] == [
            ("CD109", "a"),
            ("CD109", "b"),
        ]

    def test_the_fewest_values(self) -> None:
        """A third one differs from some entries, and is not needed."""
        c = flag("c", novel=False)
        assert named((A, c), (A,), (B, c), (B,)) == [("CD120", "a, b")]

    def test_three_values(self) -> None:
        """No two of them keep all entries off."""
        assert named((A,), (B,), (flag("c", novel=False),)) == [("CD120", "a, b, c")]

    @pytest.mark.parametrize("novel", [True, None])
    def test_not_where_a_value_is_new_or_may_be(self, novel: bool | None) -> None:
        """From a trace nothing is known of novelty: the nearest entry's guards are the causes."""
        b = flag("b", novel=novel)
        assert "CD120" not in {code for code, _ in named((b,), (A, b))}
        assert "CD120" not in {code for code, _ in named((flag("a", novel=novel),), (b,))}

    def test_parts_of_one_tensor(self) -> None:
        """A dtype and a requires_grad that each had an entry; the tensor guard is one leaf."""
        grad = tensor("x", "requires_grad", "False", "True")
        dtype = tensor("x", "dtype", "Float", "Double")
        (cause,) = found((grad,), (dtype,), (grad, dtype)).causes
        assert (cause.rule, cause.variable) == ("CD120", "x (dtype), x (requires_grad)")
        assert [part.kind for part in cause.parts] == ["dtype", "requires_grad"]

    def test_parts_of_the_global_state(self) -> None:
        """Autocast and no_grad met before, each alone."""
        (cause,) = found(
            (state("grad_mode"),),
            (state("autocast(cpu)_enabled"),),
            (state("grad_mode", "autocast(cpu)_enabled"),),
        ).causes
        assert (cause.rule, cause.variable) == ("CD120", "autocast.cpu.enabled, grad_mode")


class TestNew:
    """Values that no entry accepts."""

    def test_the_nearest_entry_knows_them_all_and_another_one_none(self) -> None:
        """`b` is read under `a` only: an entry of `a` had another `b`, which nobody compiled for.
        The entry that reads no `b` is nearer, but `a` alone is no reason."""
        b = flag("b", novel=True)
        assert named((A,), (state("grad_mode", novel=False), b)) == [
            ("CD109", "b"),
            ("CD111", "grad_mode"),
        ]

    def test_two_modes_are_two_acts(self) -> None:
        """The most recent entry differs in two modes, the other one in autocast alone."""
        assert named(
            (state("grad_mode", "autocast(cpu)_enabled"),), (state("autocast(cpu)_enabled"),)
        ) == [("CD111", "autocast.cpu.enabled")]

    def test_inference_mode_and_autocast_at_once(self) -> None:
        """The keys of both are gone from the tensor; torch guards autocast by itself."""
        facts = GuardFacts(root="argument", inference_mode=True)
        keys = replace(tensor("x", "dispatch key set", AUTOCAST_KEYS, INFERENCE_KEYS), facts=facts)
        modes = state("grad_mode", "autocast(cpu)_enabled")
        assert named((modes, keys)) == [
            ("CD111", "autocast.cpu.enabled"),
            ("CD111", "inference_mode"),
        ]

    def test_a_mode_hides_no_known_value(self) -> None:
        """An entry refuses `x`, a tensor, for autocast only; for another entry it was None."""
        none = held("G['x']", "NONE_MATCH", "G['x'] is None", "None", "Tensor [1]")
        keys = replace(tensor("x", "dispatch key set", KEYS, AUTOCAST_KEYS), source="G['x']")
        autocast = state("autocast(cpu)_enabled", novel=False)
        assert named((none,), (autocast, keys)) == [("CD120", "autocast.cpu.enabled, x")]

    def test_a_variable_that_every_entry_refuses(self) -> None:
        """One entry has nothing against the keys of the dict, another one nothing against its size:
        what it holds is new. With entries beyond those that were recorded it may be known."""
        size = held("G['d']", "DICT_LENGTH", "len(G['d']) != 0", "0 keys", "1 key", novel=False)
        first = "list(dict.keys(G['d']))[0]"
        key = held(first, "EQUALS_MATCH", f"{first} == 'b'", None, "'a'")
        entries = (size,), (key, A)
        assert named(*entries) == [("CD109", "d")]
        more = replace(recompile_of(*entries), entries_left_out=1)
        assert [cause.variable for cause in list_causes(more)] == ["d", "a"]

    def test_a_longer_dict_is_no_longer_new_because_it_once_was_none(self) -> None:
        """An entry was compiled without the dict, another one with a shorter one under a flag."""
        none = held("G['d']", "NONE_MATCH", "G['d'] is None", "None", "2 keys")
        length = held("G['d']", "DICT_LENGTH", "len(G['d']) != 1", "1 key", "2 keys")
        (cause, flagged) = found((none,), (length, A)).causes
        assert (cause.expected, cause.actual) == ("1 key", "2 keys")
        assert flagged.variable == "a"

    def test_a_hook_behind_another_one_moves_nothing(self) -> None:
        """The first hook's function is as guarded: what it captured is another value."""
        hooks = "L['self']._modules['0']._forward_hooks"
        more = FalseGuard(hooks, "DICT_LENGTH", f"len({hooks}) != 1", "1 key", "2 keys", LINE)
        first = f"{hooks}[list(dict.keys({hooks}))[0]]"
        cell = f"{first}.__closure__[0].cell_contents"
        facts = GuardFacts(root="argument", free_variable="capture", value_type="bool")
        captured = FalseGuard(
            cell, "FALSE_MATCH", f"{cell} == False", None, "True", LINE, None, facts
        )
        assert [code for code, _ in named((more, captured))] == ["CD115", "CD101"]
        text = f"___check_obj_id({first}.__code__, 7), type=<class 'code'>"
        code = FalseGuard(f"{first}.__code__", "ID_MATCH", text, user=LINE, facts=ARGUMENT)
        assert [rule for rule, _ in named((more, code, captured))] == ["CD115"]

    def test_an_enum_member_that_is_no_more_the_one_compared_with(self) -> None:
        """`way is Way.B` was true of one object with two names; the value changed."""
        way = FalseGuard(
            "G['way']", "ID_MATCH", "___check_obj_id(G['way'], 7), type=<enum 'Way'>", "Way.B",
            "Way.C", LINE, None, GuardFacts(root="global", is_enum=True),
        )  # fmt: skip
        text = "G['way'] is G['Way'].B"
        assert named((FalseGuard("", "PRINTED", text), way)) == [("CD109", "way")]

    def test_another_layout_explains_a_condition_on_strides(self) -> None:
        """With dynamic sizes, `x.stride()[0] == x.size()[1]` follows from the order in memory."""
        stride = tensor("x", "stride", "stride [*, 1]", "stride [1, 16]")
        text = "L['x'].stride()[0] == L['x'].size()[1]"
        condition = FalseGuard("", "SHAPE", text, user=LINE)
        assert [code for code, _ in named((stride, condition))] == ["CD106"]


def test_an_entry_that_does_not_guard_a_tensor_accepts_no_part_of_it() -> None:
    """It was compiled before the tensor existed: the tensor's new size is known to nobody."""
    grown = tensor("keys", "size", "[2, 7]", "[2, 8]")
    x = tensor("x", "size", "[7]", "[1]", novel=False)
    assert [code for code, _ in named((grown,), (x,))] == ["CD105"]


class TestEntries:
    """What every entry had against the call."""

    def test_nearest_first(self) -> None:
        """By the number of acts; consequences are counted only."""
        keys = tensor("x", "dispatch key set", KEYS, AUTOCAST_KEYS)
        autocast = state("autocast(cpu)_enabled")
        near, far = found((A, B), (autocast, keys)).entries
        assert [guard.variable for guard in near.guards] == ["autocast.cpu.enabled"]
        assert (near.compile_id, near.left_out) == ("0/0", 1)
        assert [(guard.variable, guard.novel) for guard in far.guards] == [
            ("a", False),
            ("b", False),
        ]

    def test_one_guard_each_where_nothing_was_evaluated(self) -> None:
        """A printed reason shows one guard of each entry, and not whether its value is new."""
        again = replace(recompile("0/1"), entries=())
        (entry,) = explain_recompile(again).entries
        assert (entry.compile_id, entry.left_out) == ("0/0", None)
        assert [(guard.variable, guard.novel) for guard in entry.guards] == [("n", None)]
        assert list_causes(again)
