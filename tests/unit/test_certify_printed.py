"""Printed lines: what may differ, and what may not."""

from dataclasses import replace
from typing import Any

import pytest

from compilediag.certify.printed import compare_printed, read_line
from compilediag.certify.values import ResultComparison
from tests.support.certified_states import printed, state


def compare(
    before: tuple[str, ...],
    after: tuple[str, ...],
    again: tuple[str, ...] | None = None,
    eager: tuple[str, ...] | None = None,
    **more: Any,
) -> ResultComparison:
    stream = more.pop("stream", "stdout")
    old, new, *others = (
        None if lines is None else state(printed(*lines, stream=stream)).timeline
        for lines in (before, after, again, eager)
    )
    assert old is not None
    assert new is not None
    return compare_printed(old, new, *others, **more)


@pytest.mark.parametrize(
    ("before", "after", "equal"),
    [
        ("loss 2.3013", "loss 2.3013", True),
        ("loss 2.3013", "loss 2.30131", True),
        ("loss 2.3013", "loss 2.3023", False),
        ("loss 2.3013", "Loss 2.3013", False),
        ("loss 2.31", "loss 2.32", False),
        ("loss 2.31e-06", "loss 2.62e-06", False),
        ("step 10001", "step 10002", False),
        ("step 3", "step 3.0", False),
        ("loss nan", "loss 2.0", False),
        ("loss nan", "loss nan", True),
        ("lr 1e-03", "lr 2e-03", False),
        ("model v2", "model v3", False),
        ("a -1.0", "a 1.0", False),
        ("loss 2.5 time 1.2ms", "loss 2.5 time 3.4ms", True),
        ("loss 2.5 time 1.2ms", "loss 2.6 time 1.2ms", False),
        ("epoch time: 1.2 loss 1.0", "epoch time: 3.9 loss 1.0", True),
        ("took 1.2", "took 3.4", True),
        ("Step: 22s1ms | Loss: 1.7", "Step: 201ms | Loss: 1.7", True),
        ("Step: 1h3m5s | Loss: 1.7", "Step: 59m2s | Loss: 1.8", False),
        ("3 passed in 36.98s", "3 passed in 127.80s (0:02:07)", True),
        ("3 passed in 36.98s", "2 passed in 127.80s (0:02:07)", False),
        ("time 1.2", "took 1.2", False),
        ("1,024 tok/s, mfu 3.2%", "999 tok/s, mfu 2.9%", True),
        ("train_runtime': 3.1, 'train_loss': 2.0", "train_runtime': 4.1, 'train_loss': 2.0", True),
        ("train_runtime': 3.1, 'train_loss': 2.0", "train_runtime': 3.1, 'train_loss': 3.0", False),
        ("mean 0.5 min 0.2", "mean 0.6 min 0.2", False),
        ("2026-11-25 10:11:12,123 INFO loss 1.0", "2026-11-26 09:01:02,003 INFO loss 1.0", True),
        ("elapsed 0:00:03", "elapsed 0:00:04", True),
        (
            "WARNING | net.a:__init__:2781 - no cache",
            "WARNING | net.a:__init__:2777 - no cache",
            True,
        ),
        (
            "WARNING | net.a:__init__:2781 - 3 calls",
            "WARNING | net.a:__init__:2777 - 4 calls",
            False,
        ),
        ("[train.py:71] loss 1.0", "[train.py:74] loss 1.0", True),
        ('File "net.py", line 7, in forward', 'File "net.py", line 9, in forward', True),
        ("epoch:5 - loss 1.0", "epoch:6 - loss 1.0", False),
        ("pid 1234 at 0x7f3e10", "pid 99 at 0x7f0010", True),
        ("saved to /tmp/tmpabc/model.pt", "saved to /tmp/tmpxyz/model.pt", True),
        ("peak 1.2GB", "peak 1.3GB", True),
        ("needs 3 s", "needs 3 GB", False),
        ("tensor(2.5, grad_fn=<MulBackward0>)", "tensor(2.5, grad_fn=<CompiledFunction>)", True),
        ("tensor(2.5, grad_fn=<MulBackward0>)", "tensor(2.5)", False),
        ("<eval_with_key>.5:117: odd size 3", "<eval_with_key>.7:12: odd size 3", True),
        ("<eval_with_key>.5:117: odd size 3", "<eval_with_key>.5:117: odd size 4", False),
        ("process 3 of 4", "process 2 of 4", False),
        ("beta 0.9", "beta 0.8", False),
        ("timestep 5", "timestep 6", False),
        ("sample 3 s=0.5", "sample 4 s=0.5", False),
    ],
)
def test_a_line(before: str, after: str, equal: bool) -> None:
    found = compare((before,), (after,))
    assert (found.difference is None) == equal, read_line(before)


def test_what_was_left_out_of_a_line_is_compared_by_its_digest() -> None:
    def make(digest: str) -> Any:
        return state(
            replace(printed("sum <redacted:hash>", "a 1.0"), digests=(digest, ""))
        ).timeline

    assert compare_printed(make("12ab"), make("12ab")).difference is None
    assert compare_printed(make("12ab"), make("99cd")).difference is not None


def test_a_mask_that_hid_something_is_said() -> None:
    found = compare(("a 1.0 in 3 ms", "b in 4 s"), ("a 1.0 in 3 ms", "b in 5 s"))
    assert found.notes == ("masked in 1 line: times",)


@pytest.mark.parametrize(
    "after",
    [
        ("a 1.0", "b 2.0"),
        ("a 1.0", "c 3.0", "b 2.0"),
        ("b 2.0", "a 1.0", "c 3.0"),
        ("a 1.0", "b 2.0", "c 3.0", "c 3.0"),
        ("a 1.0", "b 2.0", "d 3.0"),
        (),
    ],
)
def test_lines_and_their_order_are_compared(after: tuple[str, ...]) -> None:
    found = compare(("a 1.0", "b 2.0", "c 3.0"), after)
    assert found.difference is not None
    assert found.decided


@pytest.mark.parametrize("after", [("loss 2.0003", "epoch 2"), ("loss 2.0003",)])
def test_what_rounding_cannot_be_goes_before_what_it_can(after: tuple[str, ...]) -> None:
    found = compare(("loss 2.0000", "epoch 1"), after)
    assert found.size == float("inf")
    assert "epoch" in (found.difference or "") or "no longer" in (found.difference or "")


def test_a_line_less_is_named() -> None:
    found = compare(("epoch 1", "loss 2.0", "done"), ("epoch 1", "done"))
    assert found.difference == "it no longer prints 'loss 2.0', or another line like it"


def test_the_last_digit_may_turn_where_all_calls_are_equal() -> None:
    assert compare(("loss 2.31",), ("loss 2.32",), turning=True).difference is None
    for old, new in (
        ("loss 2.31", "loss 2.33"),
        ("lr 1e-03", "lr 2e-03"),
        ("beta 0.9", "beta 0.8"),
    ):
        assert compare((old,), (new,), turning=True).difference is not None


NOISE = tuple(f"x {n}.0 y {n}.0 z {n}.0 w 1.0" for n in range(4))


def test_what_differs_when_unchanged_is_not_compared() -> None:
    before = (*NOISE, "id 5.0 loss 1.0")
    again = (*NOISE, "id 6.0 loss 1.0")
    assert compare(before, (*NOISE, "id 7.0 loss 1.0"), again).difference is None
    assert compare(before, (*NOISE, "id 7.0 loss 1.0"), before).difference is not None
    lost = compare(before, (*NOISE, "id 7.0 loss 2.0"), again)
    assert lost.difference is not None
    assert lost.decided
    assert any("id # loss #" in note for note in lost.notes)


def test_where_a_quarter_differs_when_unchanged_nothing_is_decided() -> None:
    found = compare(("a 1.0 b 2.0",), ("a 1.0 b 2.0",), ("a 9.0 b 2.0",))
    assert not found.decided
    found = compare(("a 1.0",), ("a 1.0",), ("a 1.0", "b 1.0"))
    assert not found.decided


@pytest.mark.parametrize(("eager", "equal"), [("loss 2.3009", True), ("loss 2.3000", False)])
def test_eager_measures_rounding(eager: str, equal: bool) -> None:
    found = compare(("loss 2.3000",), ("loss 2.3011",), None, (eager,))
    assert (found.difference is None) == equal
    assert compare(("loss 2.3000",), ("loss 2.4",), None, ("loss 2.4",)).difference is not None


def test_where_eager_is_farther_away_nothing_is_decided() -> None:
    found = compare(("loss 2.30", "loss 2.3"), ("loss 2.30", "loss 2.4"), None, ("loss 2.5", "x"))
    assert found.difference is not None
    assert not found.decided


def test_of_a_traceback_the_error_is_compared() -> None:
    """Its frames show the edited lines, and that a script is run in place of its file."""
    head, where = "Traceback (most recent call last):", '  File "/p/app.py", line 3, in <module>'
    ours = ('  File "<frozen runpy>", line 198, in _run_module_as_main', where, "    old()")
    before, after = (head, *ours, "KeyError: 1"), (head, where, "    new()", "KeyError: 1")
    assert compare(before, after, stream="stderr").difference is None
    assert compare(before, (*after[:-1], "KeyError: 2"), stream="stderr").difference is not None


def test_of_stderr_logs_of_torch_progress_and_places_of_warnings_are_left_out() -> None:
    before = (
        "W1126 17:58:12.123000 99 site-packages/torch/_dynamo/convert_frame.py:1016] [0/8] limit",
        "/p/train.py:12: UserWarning: old api",
        "  call_old()",
        "/v/torch/_dynamo/variables/functions.py:1598: UserWarning: Dynamo detected a cache",
        "  torch._dynamo.utils.warn_once(msg)",
        " 10%|#         | 1/10 [00:01<00:09,  1.00it/s]",
        "[W1126 17:58:12.123456 99 NNPACK.cpp:64] Could not initialize",
        "lost 1.0",
    )
    after = ("/p/train.py:14: UserWarning: old api", "  call_older()", "lost 1.0")
    assert compare(before, after, stream="stderr").difference is None
    assert compare(before, after[2:], stream="stderr").difference is not None
    assert compare(before, after[:2], stream="stderr").difference is not None


def test_a_warning_is_compared_once() -> None:
    """The code of a graph prints it again, so that fewer graphs print it less often."""
    text = "UserWarning: upsample is deprecated"
    before = (f"<eval_with_key>.1:89: {text}", f"<eval_with_key>.14:89: {text}", "mine")
    for after in ((f"<eval_with_key>.3:7: {text}", "mine"), (f"/torch/nn/f.py:3: {text}", "mine")):
        assert compare(before, after, stream="stderr").difference is None
    assert compare(before, ("mine",), stream="stderr").difference is not None
    own = tuple(f"/work/a.py:{line}: UserWarning: low memory" for line in (3, 9))
    assert compare(own, own[:1], stream="stderr").difference is not None


def test_a_warning_of_torch_is_left_out_with_all_of_its_lines() -> None:
    """A warning of the program's own that has more of them is not."""
    torch = "/site/torch/_dynamo/variables/functions.py:9: UserWarning: Dynamo does not know"
    lines = (
        torch,
        "If it is a builtin, please file an issue",
        "",
        "  torch.warn_once(msg)",
        "mine",
    )
    assert compare(lines, ("mine",), stream="stderr").difference is None
    unended = (torch, "mine too", "mine")
    assert compare(unended, ("mine",), stream="stderr").difference is not None
    own = ("/work/a.py:3: UserWarning: two", "lines", "  warnings.warn(text)", "mine")
    assert compare(own, ("mine",), stream="stderr").difference is not None


def test_a_warning_of_torchs_code_about_a_line_is_left_out() -> None:
    """As of `float()` of a tensor that needs gradients, which an edit is to remove."""
    internal = (
        "/work/a.py:3: UserWarning: Converting a tensor with requires_grad=True to a scalar.",
        "Consider using tensor.detach() first. (Triggered internally at /w/csrc/methods.cpp:822.)",
        "  self.most = float(x.max())",
        "mine",
    )
    assert compare(internal, ("mine",), stream="stderr").difference is None
    assert compare(internal, ("other",), stream="stderr").difference is not None
    own = ("/work/a.py:3: UserWarning: two", "  warnings.warn(text)", *internal)
    assert compare(own, ("mine",), stream="stderr").difference is not None


def test_numbers_that_show_what_calls_computed() -> None:
    assert compare(("loss 2.51",), ("loss 2.51",)).shows_calls
    for line in ("done in 10 steps, 3.57 s", "lr 0.0003 beta 0.9", "seed 12345"):
        assert not compare((line,), (line,)).shows_calls


def test_a_long_line_is_quoted_where_it_differs() -> None:
    """Its beginning is the same in both."""
    found = compare(("name " * 40 + "loss 2.5",), ("name " * 40 + "loss 3.5",))
    assert "loss 3.5" in (found.difference or "")
    assert "loss 2.5" in (found.difference or "")


def test_a_long_line_that_goes_on_is_quoted_at_its_end() -> None:
    found = compare(("name " * 40,), ("name " * 40 + "more",))
    assert "more'" in (found.difference or "")
