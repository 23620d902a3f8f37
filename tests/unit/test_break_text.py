"""Reports of graph breaks, read: 139 recorded ones of three versions, and each of their traps."""

import json
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from compilediag.rules.breaks.break_report import CODES, load_categories, read_break
from compilediag_harness.wire import Location

GOLDEN = json.loads((Path(__file__).parents[1] / "data" / "golden_breaks.json").read_text("utf-8"))
RECORDED = [
    (name, version, text, case["category"])
    for name, case in GOLDEN.items()
    for version, text in case["first_break"].items()
    if text
]
KNOWN_MISSES = {
    # On 2.15 the custom `__getattribute__` ends as an exception without a handler (GB0088).
    ("br_getattr_custom", "215"): "CD213",
    # On 2.15 the text of the LSTM break names no module, only "Unsupported function call".
    ("br_lstm", "215"): "CD203",
}

TWO_IDS = """Graph break in user code at /home/user/app.py:21
Graph Break Reason: Failed to handle graph break gracefully. Skipping the function and falling back to eager. Graph break encountered:

Unsupported Tensor.item() call with capture_scalar_outputs=False
  Explanation: Dynamo does not support tracing `Tensor.item()`.
  Hint: Set `torch._dynamo.config.capture_scalar_outputs = True`.

  Developer debug context: call_method TensorVariable() item () {}

 For more details about this graph break, please visit: https://x.org/gb/gb0124.html

*** While handling this graph break, another graph break occurred: ***

graph break in loop
  Explanation: torch.compile detected a graph break in a for/while loop.

  Developer debug context: frame skipped: looping (/home/user/app.py line 18)

 For more details about this graph break, please visit: https://x.org/gb/gb7000.html

Stack variable source attribution:
  File "/home/user/app.py", line 19
        total = 0.0

User code traceback:
  File "/home/user/app.py", line 45, in <module>
    l(torch.ones(3, 2))
  File "/home/user/app.py", line 21, in looping
    total += row.sum().item()
"""  # noqa: E501
NO_SOURCE = "no Python source: a builtin or a C extension"
ON_PURPOSE = "Dynamo skips its file on purpose"
CALLEES = {
    # The name, its module and why, on 2.7.1 and on 2.13.
    "br_getitem_os_environ": 2 * (("posix.putenv", "posix", NO_SOURCE),),
    "br_warn": 2 * (("_warnings.warn", "_warnings", NO_SOURCE),),
    "br_random": 2 * (("Random.random", None, NO_SOURCE),),
    "br_random_choice": 2 * (("random.Random.choice", "random", ON_PURPOSE),),
    "br_manual_seed": 2 * (("torch.random.manual_seed", "torch.random", ON_PURPOSE),),
    "br_open": 2 * (("open", None, None),),
    "br_disabled": 2 * (("br_disabled.<locals>.g", None, None),),
    "br_nonzero": 2 * (("aten.nonzero.default", None, None),),
    "br_json": (("Encoder.__new__", None, NO_SOURCE), ("_json.Encoder.__new__", None, None)),
    "br_logging": (None, ("Logger.info", None, None)),
    "br_if_tensor": (None, None),
    "br_backward": (None, None),
}


@pytest.mark.parametrize("name", CALLEES)
def test_what_could_not_be_traced(name: str) -> None:
    """The function, its module and why Dynamo skips it, as far as torch's text has them."""
    for version, expected in zip(("271", "213"), CALLEES[name], strict=True):
        assert read_break(GOLDEN[name]["first_break"][version]).callee == expected


GENERIC = """Graph break in user code at m.py:3
Graph Break Reason: Attempted to call function marked as skipped
  Explanation: Dynamo does not know how to trace the builtin `{module}.{name}.` This function is \
either a Python builtin (e.g. _warnings.warn) or a third-party C/C++ Python extension (perhaps \
created with pybind).

  Developer debug context: module: {module}, qualname: {name}, skip reason: {reason}

 For more details about this graph break, please visit: https://x.org/gb/gb0007.html
"""
SKIPPED = """Graph break in user code at m.py:3
Graph Break Reason: Attempted to call function marked as skipped
  Explanation: Dynamo developers have intentionally marked that the function `{name}` in file \
`/v/lib/python3.11/site-packages/{file}` should not be traced.

  Developer debug context: module: {module}, qualname: {name}, skip reason: file is force-skipped \
(/v/lib/python3.11/site-packages/{file})

 For more details about this graph break, please visit: https://x.org/gb/gb0007.html
"""
SCHEDULER = "torch/optim/lr_scheduler.py"
LIKELY = "cannot determine source file for {module} (likely a C extension or builtin)"


@pytest.mark.parametrize(("name", "version", "text", "category"), RECORDED)
def test_golden(name: str, version: str, text: str, category: str) -> None:
    """Each recorded report has the category that its provoking code was written for."""
    assert read_break(text).code == KNOWN_MISSES.get((name, version), category)


def test_golden_is_whole() -> None:
    """The golden file has 139 reports, and only two of them are known to be misread."""
    assert len(RECORDED) == 139
    assert set(KNOWN_MISSES) <= {(name, version) for name, version, _, _ in RECORDED}


def test_the_first_of_two_ids_is_the_cause() -> None:
    """The loop (GB7000) is the consequence: the frame runs eager, because of `.item()`."""
    report = read_break(TWO_IDS)
    assert (report.gb_id, report.gb_ids) == ("GB0124", ("GB0124", "GB7000"))
    assert report.title == "Unsupported Tensor.item() call with capture_scalar_outputs=False"
    assert report.context == "call_method TensorVariable() item () {}"
    assert (report.code, report.ran_eager, report.explicit) == ("CD202", True, False)

    # The place has its function from the user's stack; the source attribution is no stack.
    assert report.site == Location("/home/user/app.py", 21, "looping")
    assert [place.line for place in report.stack] == [45, 21]


@pytest.mark.parametrize(
    ("text", "number", "code"),
    [
        ("graph break in loop", "7000", "CD904"),
        ("Dynamo recompile limit exceeded", "0039", "CD152"),
    ],
)
def test_a_consequence_alone(text: str, number: str, code: str) -> None:
    """Some ids name no cause: a loop is a frame that ran eager, the limit is the limit."""
    report = read_break(
        f"Graph break in user code at m.py:3\nGraph Break Reason: {text}\n"
        f"  Explanation: x\n\n  Developer debug context: y\n\n see /gb/gb{number}.html\n"
    )
    assert report.code == code
    assert report.ran_eager == (code == "CD904")


@pytest.mark.parametrize(
    ("module", "name", "category"),
    [
        ("_warnings", "warn", "logging_io_time"),
        ("time", "time", "logging_io_time"),
        ("<unknown module>", "Random.random", "numpy_random"),
        ("torch.random", "manual_seed", "numpy_random"),
        ("posix", "putenv", "unsupported_call"),
        ("markupsafe._speedups", "_escape_inner", "unsupported_call"),
    ],
)
def test_one_id_for_unrelated_causes(module: str, name: str, category: str) -> None:
    """GB0007 stands for warnings, clocks, random numbers and C code: only the context decides."""
    text = GENERIC.format(module=module, name=name, reason=LIKELY.format(module=module))
    report = read_break(text)
    assert (report.gb_id, report.category) == ("GB0007", category)


@pytest.mark.parametrize(
    ("module", "name", "file", "wrapper"),
    [
        ("own.optimizers", "Adan.step", SCHEDULER, SCHEDULER),
        ("torch.optim.adam", "Adam.step", SCHEDULER, SCHEDULER),
        ("__main__", "Own.step", SCHEDULER, SCHEDULER),
        ("own.train", "forward", "torch/amp/autocast_mode.py", "torch/amp/autocast_mode.py"),
        ("torch.optim.lr_scheduler", "LRScheduler.step", SCHEDULER, None),
        ("torch.random", "manual_seed", "torch/_compile.py", None),  # decorated where it is made
        ("numpy", "pad", "numpy/lib/_arraypad_impl.py", None),
        ("six", "u", "six.py", None),
        ("__main__", "main", "torch/distributed/run.py", None),  # python -m torch.distributed.run
    ],
)
def test_a_wrapper_has_the_name_of_what_it_wraps(
    module: str, name: str, file: str, wrapper: str | None
) -> None:
    """Code of another package runs under the function's name; of one's own package nothing is
    said, but for torch's schedulers."""
    report = read_break(SKIPPED.format(module=module, name=name, file=file))
    named = (f"{module}.{name}", module, ON_PURPOSE)
    assert report.callee == (
        named if wrapper is None else (name, module, f"as wrapped in {wrapper}")
    )


def test_a_method_is_named_where_torch_gives_no_module() -> None:
    text = SKIPPED.format(module="m", name="Optimizer.zero_grad", file="torch/_compile.py")
    wrapped = "qualname: Optimizer.zero_grad, name: inner, filename: `/x/torch/_compile.py`"
    report = read_break(text.replace("module: m, qualname: Optimizer.zero_grad", wrapped))
    assert report.callee == ("Optimizer.zero_grad", None, ON_PURPOSE)


def test_explicit_breaks() -> None:
    """`graph_break()` and `disable` are what the user asked for, in the words of any version."""
    titles = [
        "Call to `torch._dynamo.graph_break()`",
        "Skip calling `torch.compiler.disable()`d function",
        "Skip inlining `torch.compiler.disable()`d function",
    ]
    for title in titles:
        text = f"Graph break in user code at m.py:3\nGraph Break Reason: {title}\n"
        assert read_break(text).explicit, title
    assert not read_break(TWO_IDS).explicit


def test_skips_of_2_7() -> None:
    """2.7 reports a skipped frame without a headline; the error below it, if any, is the reason."""
    stack = '  File "/a.py", line 3, in f\n    with lock:\n  File "/b.py", line 8, in g\n    pass\n'
    report = read_break(f"Graph break: skip: from user code at:\n{stack}")
    assert (report.site, report.ran_eager) == (Location("/b.py", 8, "g"), True)
    raised = (
        "Traceback (most recent call last):\n"
        '  File "/torch/_dynamo/exc.py", line 439, in unimplemented\n'
        "torch._dynamo.exc.Unsupported: Generator as graph argument is not supported\n"
        "\nfrom user code:\n   File x\n"
    )
    report = read_break(f"Graph break: skip: from user code at:\n{stack}\n{raised}")
    assert report.title == "Generator as graph argument is not supported"
    assert (report.code, report.site) == ("CD205", Location("/b.py", 8, "g"))


def test_a_repeated_report_has_its_place() -> None:
    """The suppressed form has no stack, and still names file, line and cause."""
    text = (
        "Graph break (user stack suppressed due to duplicate graph break) in user code at "
        "/a:b/m.py:16\nGraph Break Reason: Data-dependent branching\n  Explanation: x\n"
    )
    report = read_break(text)
    assert report.site == Location("/a:b/m.py", 16)
    assert (report.code, report.stack) == ("CD201", ())


@given(st.text(max_size=400))
@settings(max_examples=100, deadline=None)
def test_any_text(text: str) -> None:
    """No text raises; every one has a category with a code."""
    for made in (text, f"Graph Break Reason: {text}", f"Graph break: {text}"):
        assert CODES[read_break(made).category].startswith("CD2")


def test_data_is_consistent() -> None:
    """Every id, rule and refinement names a category that has a code; every expression is one."""
    table = load_categories()
    rules = (*table.by_context, *table.by_title, *table.by_legacy_title)
    assert {*table.ids.values(), *(category for category, _ in rules)} <= set(CODES)
    assert all(pattern.pattern for _, pattern in rules)
    assert len(table.ids) == 593
    assert table.generic <= set(table.ids)
