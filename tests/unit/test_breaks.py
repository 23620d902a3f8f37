"""Graph-break findings: one per place, blamed on the line to change, as severe as what it costs."""

from dataclasses import replace

import pytest
from timelines import FILE, PACKAGE_FILE, TORCH_FILE, WHERE, attempt, site, timeline

from compilediag.diagnosis.findings import Finding, make_place
from compilediag.rules.breaks.rule import find_breaks
from compilediag.rules.diagnose import diagnose
from compilediag.timeline.timeline import Compile, Timeline
from compilediag_harness.wire import Location, UserCall

ITEM = """Graph break in user code at {file}:{line}
Graph Break Reason: Encountered graph break when attempting to trace CALL: a function call:

Unsupported Tensor.item() call with capture_scalar_outputs=False
  Explanation: Dynamo does not support tracing `Tensor.item()`.

  Developer debug context: call_method TensorVariable() item () {{}}

 For more details about this graph break, please visit: https://x.org/gb/gb0124.html

User code traceback:
  File "/home/user/app.py", line 40, in <module>
    model(x)
  File "/home/user/app.py", line 12, in forward
    return self.body(x)
  File "{file}", line {line}, in {function}
    x.item()
"""
GRACEFUL = "Encountered graph break when attempting to trace CALL: a function call:"
GIVEN_UP = (
    "Failed to handle graph break gracefully. Skipping the function and falling back to eager. "
    "Graph break encountered:"
)
DISABLED = """Graph break in user code at /home/user/app.py:14
Graph Break Reason: Skip calling `torch.compiler.disable()`d function
  Explanation: Skip calling function since it was wrapped with `torch.compiler.disable`

  Developer debug context: <function f>
"""


def item_at(file: str = FILE, line: int = 14, function: str = "forward") -> str:
    return ITEM.format(file=file, line=line, function=function)


def only(run: Timeline) -> Finding:
    (finding,) = find_breaks(run)
    return finding


def test_a_frame_that_runs_eager_is_an_error() -> None:
    """In torch's words or by the frame itself no graph is left: an error, not a warning."""
    run = timeline([attempt("0/0")], breaks=(site(item_at()),))
    frame = replace(run.frames[0], graphs=0, ran_eager=True, eager_reason="a break")
    assert only(replace(run, frames=(frame,))).severity == "error"
    given_up = site(item_at().replace(GRACEFUL, GIVEN_UP))
    finding = only(timeline([attempt("0/0")], breaks=(given_up,)))
    assert (finding.severity, finding.evidence["ran_eager"]) == ("error", True)
    assert "eager" in str(finding.evidence["effect"])


def test_ids_of_another_reset_or_process() -> None:
    """The same compile id of an unrelated frame (after a reset) does not make the break eager."""
    other = attempt("0/0", kind="failed", where=Location("/home/user/other.py", 3, "g"), epoch=1)
    finding = only(timeline([attempt("0/0"), other], breaks=(site(item_at()),)))
    assert (finding.severity, finding.evidence["frames"]) == ("warning", ["forward"])


def test_a_frame_that_the_text_does_not_name_is_known_by_its_compile() -> None:
    """The report kept for a place is one of several: another frame's names other files."""
    outer = Location("/home/user/blocks.py", 3, "call")
    given_up = attempt("1/0", kind="failed", where=outer, fail_type="Unsupported")
    broke = site(item_at(), compile_ids=("0/0", "1/0"), count=2)
    run = timeline([attempt("0/0"), given_up], breaks=(broke,))
    finding = only(run)
    assert finding.evidence["eager_frames"] == [[outer.file, outer.line]]
    assert [found.rule for found in diagnose(run).findings] == ["CD202"]


CREATED = """Graph break in user code at /home/user/app.py:14
Graph Break Reason: Attempted to use tensor creation function with requires_grad=True
  Explanation: Dynamo does not support this.
  Hint: Create the tensor outside the compiled region.
  Hint: Do not set `requires_grad=True`.
  Hint: It may be possible to write Dynamo tracing rules for this code. Please report an issue.

  Developer debug context: fn=<built-in method tensor>, args=[ConstantVariable(float: 0.0)]

 For more details about this graph break, please visit: https://x.org/gb/gb0225.html
"""
RNN = """Graph break in user code at /home/user/app.py:14
Graph Break Reason: Attempted to wrap RNN, GRU, or LSTM
  Explanation: Dynamo does not support RNN, GRU, or LSTM.
  Hint: Set torch._dynamo.config.allow_rnn=True to enable experimental support for RNN modules.

  Developer debug context: rnn
"""


def test_a_break_of_many_kinds_has_the_hint_of_torch() -> None:
    """It knows what this one needs, where the advice of a category would be about another."""
    fix = only(timeline([attempt("0/0")], breaks=(site(CREATED),))).fix
    assert fix.summary == (
        "torch's hint: Create the tensor outside the compiled region; "
        "or: Do not set `requires_grad=True`"
    )
    fix = only(timeline([attempt("0/0")], breaks=(site(RNN),))).fix
    assert "unless torch._dynamo.config.allow_rnn is set" in fix.summary
    assert "each length is a graph of its own" in (fix.caveat or "")
    assert "leaves out its dropout between layers" in (fix.caveat or "")
    # One hint leaves out the module of the option: it is that option, and said once.
    unset = CREATED.replace("Do not set `requires_grad=True`", "Set torch._dynamo.allow_rnn=True")
    fix = only(timeline([attempt("0/0")], breaks=(site(unset),))).fix
    assert fix.summary.count("allow_rnn") == 1


def test_nobody_passes_the_iterator_of_a_comprehension() -> None:
    """Up to Python 3.11 it is a function that the code around it calls with one."""
    text = CREATED.replace("gb0225", "gb4347").replace("Hint: ", "Hint: Please ")
    text += '\nUser code traceback:\n  File "/home/user/app.py", line 14, in {}\n    x\n'
    for name, advice in (("<listcomp>", "call it outside the compiled"), ("f", "pass a list")):
        found = only(timeline([attempt("0/0")], breaks=(site(text.format(name)),)))
        assert (found.rule, found.fix.summary.startswith(advice)) == ("CD205", True)


def test_an_explicit_break_of_others_can_only_be_accepted() -> None:
    """torch's own optimizer asks for one: the program has no call to remove."""
    met = site(DISABLED, file=TORCH_FILE, line=79, function="step")
    finding = only(timeline([attempt("0/0")], breaks=(met,)))
    assert finding.fix.summary.startswith("accept it")
    assert "remove" not in finding.fix.summary
    own = only(timeline([attempt("0/0")], breaks=(site(DISABLED),)))
    assert "remove the call" in own.fix.summary


INNER = Location(TORCH_FILE, 1829, "inner")
REARRANGE = Location(PACKAGE_FILE, 7, "rearrange")


@pytest.mark.parametrize(
    ("broke", "frame", "blamed", "owner", "severity"),
    [
        (REARRANGE, WHERE, REARRANGE, "third_party", "warning"),
        # A backward hook breaks in torch/nn/modules/module.py: the line to change called it.
        (INNER, WHERE, Location(FILE, 12, "forward"), "user", "warning"),
        # In a frame of torch (an optimizer's step).
        (INNER, replace(INNER, line=1800), INNER, "torch", "info"),
    ],
)
def test_whose_a_break_is(broke, frame, blamed, owner, severity) -> None:
    text = item_at(broke.file, broke.line, broke.function)
    met = site(text, file=broke.file, line=broke.line, function=broke.function)
    finding = only(timeline([attempt("0/0", where=frame)], breaks=(met,)))
    assert finding.location == make_place(blamed)
    assert (finding.ownership, finding.severity) == (owner, severity)


def test_a_stack_without_the_compiled_frame() -> None:
    """From 2.13 on the stack of a module's break may leave out the forward that was compiled."""
    text = item_at(TORCH_FILE, 1829, "inner").replace("line 12, in forward", "line 39, in main")
    met = site(text, file=TORCH_FILE, line=1829, function="inner")
    finding = only(timeline([attempt("0/0")], breaks=(met,)))
    assert (finding.location, finding.ownership) == (make_place(WHERE), "user")


def test_the_reason_that_2_7_leaves_out() -> None:
    """2.7 logs the stack of a skipped frame only; its metrics row has the reason."""
    text = f'Graph break: skip: from user code at:\n  File "{FILE}", line 14, in forward\n'
    failed = attempt(
        "0/0",
        kind="failed",
        fail_type="Unsupported",
        fail_reason="Unsupported context manager\n  Explanation: x\n\n  Developer debug context: y",
    )
    finding = only(timeline([failed], breaks=(site(text),)))
    assert (finding.rule, finding.severity, finding.confidence) == ("CD206", "error", "text")
    assert finding.title == "graph break: Unsupported context manager"


def test_the_limit_is_no_break() -> None:
    """GB0039 stands for the recompile limit, which is CD152."""
    text = (
        "Graph break in user code at /home/user/app.py:14\nGraph Break Reason: Dynamo recompile "
        "limit exceeded\n  Explanation: x\n\n see /gb/gb0039.html\n"
    )
    assert list(find_breaks(timeline([attempt("0/0")], breaks=(site(text),)))) == []


def test_the_rest_of_the_function_is_counted() -> None:
    """The frame that resumes after the break is named as what the break costs."""
    resume = Location(FILE, 14, "torch_dynamo_resume_in_forward_at_14")
    compiles: list[Compile] = [attempt("0/0"), attempt("1/0", where=resume)]
    finding = only(timeline(compiles, breaks=(site(item_at()),)))
    assert (finding.evidence["resumed_frames"], finding.evidence["resumed_compiles"]) == (1, 1)


@pytest.mark.parametrize("text", ["", "Graph break in user code at", "\x00\n" * 9])
def test_unknown_wording(text: str) -> None:
    """An unknown report is still a finding, of the category for the rest."""
    finding = only(timeline([attempt("0/0")], breaks=(site(text),)))
    assert finding.rule in ("CD290", "CD203")
    assert finding.location == make_place(Location(FILE, 14, "forward"))


SKIPPED = """Graph break in user code at /home/user/app.py:14
Graph Break Reason: Attempted to call function marked as skipped
  Explanation: Dynamo developers have intentionally marked that the function `Adan.step` in file \
`/v/site-packages/{file}` should not be traced.

  Developer debug context: module: own.adan, qualname: Adan.step, skip reason: file is \
force-skipped (/v/site-packages/{file})

 For more details about this graph break, please visit: https://x.org/gb/gb0007.html
"""


@pytest.mark.parametrize(
    ("file", "advice"),
    [
        ("torch/optim/lr_scheduler.py", "before the scheduler is made"),
        ("torch/amp/autocast_mode.py", "compile it before it is wrapped"),
        ("own/adan.py", "call `own.adan.Adan.step` outside the compiled function"),
    ],
)
def test_what_dynamo_skips_may_be_a_wrapper(file: str, advice: str) -> None:
    """Which has the function's name: it is named by the file it is of, and no path of a machine."""
    text = SKIPPED.format(file=file)
    finding = only(timeline([attempt("0/0")], breaks=(site(text),)))
    assert advice in finding.fix.summary
    name = f"Adan.step (as wrapped in {file})"
    if file.startswith("own"):
        name = "own.adan.Adan.step (Dynamo skips its file on purpose)"
    assert finding.title == f"graph break: Attempted to call function marked as skipped: {name}"


@pytest.mark.parametrize(("operator", "is_selection"), [("nonzero", True), ("linalg_lstsq", False)])
def test_not_every_unknown_size_is_a_selection(operator: str, *, is_selection: bool) -> None:
    text = f"""Graph break in user code at /home/user/app.py:14
Graph Break Reason: Dynamic shape operator
  Explanation: Operator `aten.{operator}.default`'s output shape depends on input Tensor data.
  Hint: Enable tracing of dynamic shape operators with \
`torch._dynamo.config.capture_dynamic_output_shape_ops = True`

  Developer debug context: aten.{operator}.default

 For more details about this graph break, please visit: https://x.org/gb/gb0036.html
"""
    fix = only(timeline([attempt("0/0")], breaks=(site(text),))).fix
    assert ("torch.where" in fix.summary) == is_selection
    assert ("outside the compiled function" in fix.summary) != is_selection


def test_the_state_of_a_generator_is_not_drawn() -> None:
    """As where a reversible block keeps it, to draw the same again in its backward pass."""
    text = SKIPPED.format(file="torch/random.py").replace("own.adan", "torch.random")
    advice = [
        only(timeline([attempt("0/0")], breaks=(site(text.replace("Adan.step", name)),))).fix
        for name in ("get_rng_state", "rand")
    ]
    assert advice[0].summary.startswith("call `torch.random.get_rng_state` outside")
    assert advice[1].summary.startswith("draw before the compiled function")


HINT = "  Hint: Set `torch._dynamo.config.capture_scalar_outputs = True`.\n"


@pytest.mark.parametrize(
    ("read", "begin"),
    [
        ("epoch", "decide the branch at app.py:20 outside of the compiled function"),
        ("self.step", "decide the branch at app.py:20 outside of the compiled function; or keep"),
    ],
)
def test_an_option_is_no_advice_where_the_number_decides_a_branch(read: str, begin: str) -> None:
    """With it the graph breaks at the branch; of an attribute a plain one beside it cures."""
    text = item_at().replace("  Developer", f"{HINT}  Developer")
    as_number = only(timeline([attempt("0/0")], breaks=(site(text),)))
    assert as_number.fix.summary.endswith("capture_scalar_outputs = True, as torch's own hint says")
    deciding = replace(site(text), branch=UserCall(FILE, 20, "", read))
    finding = only(timeline([attempt("0/0")], breaks=(deciding,)))
    assert finding.fix.summary.startswith(begin)
    assert (f"`{read}`" in finding.fix.summary) is read.startswith("self.")
    assert "capture_scalar_outputs" not in finding.fix.summary
    assert "does not help at a branch" in (finding.fix.caveat or "")
    assert finding.evidence["options"] == {"capture_scalar_outputs": "True"}


BACKEND = """Graph break in user code at {file}:{at}
Graph Break Reason: Encountered graph break that we cannot resume from. Graph break encountered:

Backend compiler exception
  Explanation: Backend compiler `aot_eager` failed with aten._local_scalar_dense.default

    While executing %h : [num_users=1] = call_method[target=view](args = (%ins, -1, %l_self_n))
    Original traceback:
      File "/home/user/app.py", line 20, in call
        return self.encode(x)
      File "/home/user/app.py", line 36, in encode
        h = ins.view(-1, self.n)

    Use tlparse to see full graph. Adding a graph break.
  Hint: Report an issue to the backend compiler repo.

  Developer debug context: Backend: aot_eager
    Exception:aten._local_scalar_dense.default

    Traceback:
      File "/home/user/app.py", line 39, in encode
        return self.fc(h)


 For more details about this graph break, please visit: https://x.org/gb/gb0219.html
"""


def test_an_operation_that_fails_in_the_backend_is_one_finding_at_its_line() -> None:
    """torch reports the line of the frame, and of each frame that is given the operation."""
    outer, inner = Location(FILE, 18, "call"), Location(FILE, 35, "encode")
    ids = ("0/0", "1/0")
    compiles = [
        attempt(n, where=where, kind="failed", fail_type="Unsupported")
        for n, where in zip(ids, (outer, inner), strict=True)
    ]
    breaks = tuple(
        site(BACKEND.format(file=FILE, at=where.line), line=where.line, compile_ids=(n,))
        for n, where in zip(ids, (outer, inner), strict=True)
    )
    found = diagnose(timeline(compiles, breaks=breaks)).findings
    (finding,) = (each for each in found if each.rule != "CD901")  # no graph is left
    assert (finding.rule, finding.severity, finding.count) == ("CD210", "error", 2)
    assert finding.location == make_place(Location(FILE, 36, "encode"))
    assert finding.title.endswith("Backend compiler exception: aten._local_scalar_dense.default")
    assert finding.evidence["eager_frames"] == [[FILE, 18], [FILE, 35]]
    assert finding.fix.summary.startswith("give it a Python number")


@pytest.mark.parametrize(("backend", "asked"), [("inductor", True), ("aot_eager", False)])
def test_another_backend_is_advised_where_the_programs_is_another(
    backend: str, asked: bool
) -> None:
    text = BACKEND.replace("aten._local_scalar_dense", "aten.sort").replace("aot_eager", backend)
    finding = only(timeline([attempt("0/0")], breaks=(site(text.format(file=FILE, at=14)),)))
    assert ("whose exception" in finding.fix.summary) == asked
