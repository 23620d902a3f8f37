"""What is made, registered or entered once: the text that the edits make, and where they refuse."""

from __future__ import annotations

from textwrap import dedent

import pytest

from compilediag.fixes.codemods.edit import Edit, EditImpossible, edited, shown

pytest.importorskip("libcst")

HEAD = "import functools\nimport torch\n\n"


def changed(kind: str, text: str, *code: str) -> str:
    """The text with the edit in the line that ends with `# here`, without the imports."""
    whole = HEAD + dedent(text)
    line = next(i for i, each in enumerate(whole.splitlines(), 1) if each.endswith("# here"))
    return edited(whole, [Edit("f.py", line, kind, code)]).removeprefix(HEAD)


def refusal(kind: str, text: str, *code: str) -> str:
    with pytest.raises(EditImpossible) as error:
        changed(kind, text, *code)
    return str(error.value)


LOOP = """\
for step in range(4):
    {}
    apply(x, op)  # here
"""


@pytest.mark.parametrize(
    "made",
    [
        "op = lambda x: x + 1",
        "op = functools.partial(torch.clamp, min=0.5)",
        "def op(x):\n        return x + 1",
        "class op:\n        scale = 2.0",
    ],
)
def test_what_is_the_same_each_time_is_made_before_the_loop(made: str) -> None:
    found = changed("hoisted", LOOP.format(made), "apply(x, op)", "op")
    assert found.endswith("for step in range(4):\n    apply(x, op)  # here\n")
    assert found.startswith(made.replace("\n        ", "\n    "))


@pytest.mark.parametrize(
    ("made", "why"),
    [
        ("op = lambda x: x + step", "`step` changes"),
        ("op = lambda x, s=step: x + s", "the default of `s` is not a constant"),
        ("op = functools.partial(torch.clamp, min=step)", "`step` changes"),
        ("op = make(step)", "`make` may do more"),
        ("op = lambda x: x + 1\n    op.calls = 3", "is changed where it is used|more with `op`"),
        ("op = lambda x: x + 1\n    kept.append(op)", "more with `op`"),
        ("op = lambda x: x + 1\n    if step:\n        op = abs", "not made at exactly one place"),
        ("class op:\n        seen = []", "may be a different one each time"),
        ("def op(x, seen=[]):\n        return x", "is not a constant"),
    ],
)
def test_what_may_be_another_each_time_stays(made: str, why: str) -> None:
    import re

    assert re.search(why, refusal("hoisted", LOOP.format(made), "apply(x, op)", "op"))


def test_a_class_of_a_function_is_made_before_it() -> None:
    found = changed(
        "hoisted",
        """\
        def step(x):
            class Shift:
                def __call__(self, x):
                    return x + 0.5
            op = Shift()
            return apply(x, op)  # here
        """,
        "apply(x, op)",
        "op",
    )
    assert found == dedent("""\
        class Shift:
            def __call__(self, x):
                return x + 0.5

        def step(x):
            op = Shift()
            return apply(x, op)  # here
        """)


BACKENDS = """\
def backend(log):
    {}
    def compile_graph(graph, inputs):
        log.append(graph)
        return graph.forward
    return compile_graph
log = []
for step in range(4):
    compiled = torch.compile(scale, backend=backend({}))
    compiled(x)  # here
"""


def test_a_compiled_function_is_made_once_where_its_backend_keeps_nothing() -> None:
    found = changed("hoisted", BACKENDS.format('"""Counts."""', "log"), "compiled(x)", "")
    made = "compiled = torch.compile(scale, backend=backend(log))\nfor step"
    assert made in found
    assert "may do more" in refusal(
        "hoisted", BACKENDS.format("log = [*log]", "log"), "compiled(x)", ""
    )
    assert "`step` changes" in refusal(
        "hoisted", BACKENDS.format("'''Counts.'''", "step"), "compiled(x)", ""
    )


def test_a_global_that_a_function_sets_is_not_read_before_the_loop() -> None:
    text = """\
        SCALE = 1.0
        def grow():
            global SCALE
            SCALE = 2.0
        for step in range(4):
            op = functools.partial(scaled, SCALE)
            apply(x, op)  # here
            grow()
        """
    assert "`SCALE` is changed elsewhere" in refusal("hoisted", text, "apply(x, op)", "op")


HOOKS = """\
def peak(module, inputs, output):
    high.copy_(output.detach().max())

for step in range(4):
    if {}:
        model[0].register_forward_hook(peak)
    compiled(x)  # here
"""


def test_a_hook_that_comes_later_writes_only_once_it_would_have_been_registered() -> None:
    assert changed("registered_once", HOOKS.format("step == 2")) == dedent("""\
        def peak(module, inputs, output):
            high.copy_(torch.where(peak_on, output.detach().max(), high))

        peak_on = torch.zeros((), dtype=torch.bool, device=high.device)
        model[0].register_forward_hook(peak)
        for step in range(4):
            if step == 2:
                peak_on.fill_(True)
            compiled(x)  # here
        """)


@pytest.mark.parametrize(
    ("old", "new", "why"),
    [
        ("step == 2", "step > 1", "registered more than once"),
        ("high.copy_(output.detach().max())", "high.add_(1)", "more than copy"),
        ("high.copy_(output.detach().max())", "high.copy_(output.max())", "a gradient"),
        ("high.copy_(output.detach().max())", "seen['high'] = output", "more than copy"),
        ("model[0].", "models[step].", "a different one in each pass"),
        (
            "register_forward_hook(peak)",
            "register_forward_hook(make(step))",
            "more than a function",
        ),
    ],
)
def test_a_hook_that_does_more_stays(old: str, new: str, why: str) -> None:
    assert why in refusal("registered_once", HOOKS.format("step == 2").replace(old, new))


REMOVED = """\
for step in range(4):
    x = torch.randn(4)
    handle = model.register_forward_hook(record)
    out = compiled(x)  # here
    handle.remove()
    {}
"""


def test_a_hook_of_each_pass_is_registered_around_the_loop() -> None:
    found = changed("registered_once", REMOVED.format("print(out.sum().item())"))
    assert found == dedent("""\
        handle = model.register_forward_hook(record)
        for step in range(4):
            x = torch.randn(4)
            out = compiled(x)  # here
            print(out.sum().item())
        handle.remove()
        """)


@pytest.mark.parametrize("after", ["model(x)", "evaluate()", "compiled(x)", "break"])
def test_a_module_that_is_called_without_its_hook_keeps_it_so(after: str) -> None:
    assert refusal("registered_once", REMOVED.format(after))


DISABLED = """\
def watch(model):
    def record(module, inputs, output):
        print(output)  # here

    model.register_forward_hook(record)

def other(model):
    def record(module, inputs, output):
        pass

    model.register_forward_hook(record)
"""


def test_a_hook_is_disabled_where_that_one_is_registered() -> None:
    found = changed("disabled_hook", DISABLED)
    assert found.count("model.register_forward_hook(torch.compiler.disable(record))") == 1
    assert found.index("torch.compiler.disable") < found.index("def other")
    line, code = shown(HEAD + DISABLED, Edit("f.py", 6, "disabled_hook")) or (0, "")
    assert (line, code) == (8, "model.register_forward_hook(torch.compiler.disable(record))")
    assert "registers" in refusal(
        "disabled_hook", DISABLED.replace("register_forward_hook(record)", "hooks.append(record)")
    )


def test_a_hook_that_is_a_function_of_the_module() -> None:
    hook = "def record(module, inputs, output):\n    print(output)  # here\n\n"
    found = changed("disabled_hook", f"{hook}model.register_forward_hook(record)\n")
    assert "model.register_forward_hook(torch.compiler.disable(record))" in found
    used = f"{hook}def show(net):\n    return net.record\n"
    assert "registers record" in refusal("disabled_hook", used)


LOCKED = """\
@torch.compile
def update(values):
    with {}:  # here
        return values.tanh()
"""


def test_a_context_is_entered_outside_of_the_compiled_function() -> None:
    assert changed("around_call", LOCKED.format("LOCK")) == dedent("""\
        def around_update(function):
            @functools.wraps(function)
            def entered(*args, **kwargs):
                with LOCK:
                    return function(*args, **kwargs)
            return entered

        @around_update
        @torch.compile
        def update(values):
            return values.tanh()
        """)
    called = (
        LOCKED.format("LOCK").replace("@torch.compile\n", "") + "fast = torch.compile(update)\n"
    )
    assert "fast = around_update(torch.compile(update))" in changed("around_call", called)
    assert "used nowhere else" in refusal("around_call", called + "update(x)\n")


MIXED = """\
class Mixer(torch.nn.Module):
    def forward(self, rows):
        with torch.autocast("cpu"):  # here
            rows = rows @ rows
        return rows

mixer = torch.compile(Mixer())
mixer(torch.ones(2, 2))
"""


def test_a_with_of_forward_is_entered_around_the_compiled_module() -> None:
    text = changed("around_call", MIXED)
    assert "mixer = around_forward(torch.compile(Mixer()))" in text
    assert "    def forward(self, rows):\n        rows = rows @ rows\n        return rows\n" in text
    for before, after, why in (
        ("return rows", "return rows.float()", "does more than what stands under its `with`"),
        ('"cpu"', "self.device", "`self` is a local variable"),
        ("mixer(torch.ones(2, 2))", "save(mixer)", "used for more than calls"),
        ("mixer(torch.ones(2, 2))", "Mixer()", "not made at one place"),
    ):
        assert before in MIXED
        assert why in refusal("around_call", MIXED.replace(before, after))


@pytest.mark.parametrize(
    ("program", "why"),
    [
        (LOCKED.format("values.lock"), "is a local variable"),
        (LOCKED.format("LOCK as held"), "is used in it"),
        (LOCKED.format("LOCK") + "    return values\n", "does more"),
        ("@traced\n" + LOCKED.format("LOCK"), "another decorator"),
        (LOCKED.format("LOCK").replace("return", "yield"), "is a generator"),
    ],
)
def test_a_context_of_a_part_stays(program: str, why: str) -> None:
    assert why in refusal("around_call", program)


POOL = """\
@torch.compile
def pool(x, mask=None):
    if mask is not None:
        {}
    return x

for step in range(4):
    mask = {}
    pool(x, mask)  # here
"""
CHOICE = "torch.ones(4) if step % 2 else None"


@pytest.mark.parametrize(
    ("used", "neutral"),
    [
        ("x = x * mask", "ones"),
        ("x /= mask", "ones"),
        ("x = x + mask", "zeros"),
        ("x = x.masked_fill(mask, 0)", "zeros"),
        ("x = x.masked_fill(mask == 0, 0)", "ones"),
        ("x = x.masked_fill(~mask, 0)", "ones"),
        ("x = torch.where(mask, x, 0)", "ones"),
        ("x = torch.where(mask, 0, x)", "zeros"),
    ],
)
def test_none_becomes_what_changes_nothing(used: str, neutral: str) -> None:
    code = ("pool(x, mask)", "mask", "mask", "6", "torch.float32")
    found = changed("neutral_argument", POOL.format(used, CHOICE), *code)
    assert f"torch.ones(4) if step % 2 else torch.{neutral}_like(torch.ones(4))" in found


ATTENDED = """\
from torch import nn

class Attention(nn.Module):
    def forward(self, x, mask=None):
        return nn.functional.scaled_dot_product_attention(x, x, x, attn_mask=mask)

class Block(nn.Module):
    def forward(self, x, mask=None):
        return self.attention(x, mask)

for step in range(4):
    block(x, mask=causal if step % 2 else None)  # here
"""


@pytest.mark.parametrize(("dtype", "neutral"), [("bool", "ones"), ("float32", "zeros")])
def test_a_mask_of_attention_that_hides_nothing(dtype: str, neutral: str) -> None:
    call = "block(x, mask=causal if step % 2 else None)"
    code = (call, "causal if step % 2 else None", "mask", "12", f"torch.{dtype}")
    found = changed("neutral_argument", ATTENDED, *code)
    assert f"causal if step % 2 else torch.{neutral}_like(causal)" in found
    kept = ATTENDED.replace("self.attention(x, mask)", "self.attention(x, mask.sum())")
    assert "more than one operand" in refusal("neutral_argument", kept, *code)


@pytest.mark.parametrize(
    ("used", "choice", "why"),
    [
        ("x = x * mask + 1", CHOICE, "more than one operand"),
        ("x = mask * y", CHOICE, "more than one operand"),
        ("x = y.masked_fill(mask, 0)", CHOICE, "more than one operand"),
        ("x = x.masked_fill(mask > 3, 0)", CHOICE, "more than one operand"),
        ("x = torch.relu(mask)", CHOICE, "more than one operand"),
        ("x = x * mask", "torch.rand(4) if step % 2 else None", "may do more"),
        ("x = x * mask", "given if given is not None else None", "decides"),
        ("x = x * mask", "made(step)", "not made by one choice"),
    ],
)
def test_none_that_means_more_stays(used: str, choice: str, why: str) -> None:
    code = ("pool(x, mask)", "mask", "mask", "6", "torch.float32")
    assert why in refusal("neutral_argument", POOL.format(used, choice), *code)


BEFORE = "torch._dynamo.maybe_mark_dynamic(x, 0)"


def test_a_line_before_a_call() -> None:
    assert changed("before", "for x in loader:\n    model(x)  # here\n", BEFORE) == (
        f"for x in loader:\n    {BEFORE}\n    model(x)  # here\n"
    )


@pytest.mark.parametrize(
    "statement",
    ["total = sum(model(x) for x in loader)", "map(lambda x: model(x), loader)", "f(x := y)"],
)
def test_a_name_that_the_statement_binds(statement: str) -> None:
    """The line before it would be about another tensor."""
    assert "only inside the statement" in refusal("before", f"{statement}  # here\n", BEFORE)
