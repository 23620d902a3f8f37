"""Guards of a cache entry that are evaluated again: those that cannot be are no unknown cause."""

from types import SimpleNamespace

from compilediag_harness.collectors.leaf_checks import ExaminedEntry, LeafChecks

VIEWED = ("L['x']._base.stride()[0] == L['x'].size()[1]  # (unknown source)", "L['x'].ok == 1")


def examine(x: object) -> ExaminedEntry:
    """Examine an entry with two conditions on `x`, as torch evaluates them: after all others."""
    leaf = SimpleNamespace(verbose_code_parts=lambda: VIEWED)
    root = SimpleNamespace(
        get_leaf_guards=list, get_child_managers=list, get_epilogue_lambda_guards=lambda: [leaf]
    )
    entry = SimpleNamespace(guard_manager=SimpleNamespace(root=root))
    return LeafChecks({"x": x}, float("inf")).examine(entry, {})


def test_what_is_none_where_a_condition_reads_a_size_is_false() -> None:
    """torch prints nothing of it but the text of the exception."""
    examined = examine(SimpleNamespace(_base=None, ok=1))
    assert [(leaf.source, leaf.kind) for leaf in examined.false] == [
        ("L['x']._base", "TENSOR_MATCH")
    ]
    assert examined.raised == {"'NoneType' object has no attribute 'stride'"}
    assert examined.unevaluated == 0


def test_a_condition_that_raises_for_another_reason_stays_unknown() -> None:
    """Nothing that it reads is None."""
    examined = examine(SimpleNamespace(ok=1))
    assert examined.false == []
    assert examined.unevaluated == 1
