"""The oracle counts by torch's definitions: shown with rows as torch writes them."""

from typing import Any

from oracle import break_sites, counts


def row(compile_id: str, **changes: Any) -> dict[str, Any]:
    """A forward row that ended with a graph of two operations."""
    base: dict[str, Any] = {
        "id": compile_id,
        "epoch": 0,
        "forward": True,
        "guarded": True,
        "operations": 2,
        "reason": None,
        "failure": "",
    }
    return {**base, **changes}


def test_attempt_at_the_limit_is_no_recompile() -> None:
    """Eight graphs and a refused ninth attempt: seven recompiles and one limit hit."""
    rows = [row("0/0"), *(row(f"0/{n}", reason="x == 1") for n in range(1, 8))]
    rows.append(row("0/8", guarded=False, operations=None, failure="recompile_limit reached"))
    found = counts(rows, [])
    assert (found["compiles"], found["recompiles"], found["recompile_limit_hits"]) == (8, 7, 1)
    assert (found["frames"], found["eager_fallbacks"]) == (1, 1)


def test_backward_rows_do_not_count() -> None:
    """A lazily compiled backward repeats the id of its forward and is no frame."""
    found = counts([row("0/0"), row("0/0", forward=False, guarded=False)], [])
    assert (found["frames"], found["compiles"], found["eager_fallbacks"]) == (1, 1, 0)


def test_ids_of_two_epochs_are_two_frames() -> None:
    """After a reset the ids start again; the epoch keeps the frames apart."""
    assert counts([row("0/0"), row("0/0", epoch=1)], [])["frames"] == 2


def test_a_first_compile_of_another_region_is_no_recompile() -> None:
    """Ids above /0 without a reason are first compiles (`isolate_recompiles`)."""
    assert counts([row("0/0"), row("0/1")], [])["recompiles"] == 0


def test_break_sites_are_counted_once() -> None:
    """One place reported by three compiles is one graph break."""
    text = "Graph break in user code at model.py:7\nGraph Break Reason: print"
    assert break_sites([text, text, text.replace(":7", ":9")]) == {("model.py", 7), ("model.py", 9)}
