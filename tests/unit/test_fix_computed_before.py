"""What is computed before the call: not where that would compute something else."""

from __future__ import annotations

from textwrap import dedent

import pytest

from compilediag.fixes.codemods.edit import Edit, EditImpossible, edited

pytest.importorskip("libcst")

HEAD = "import random\nimport zlib\nimport torch\n"


def changed(kind: str, text: str, *code: str) -> str:
    """The text with the edit in the line that ends with `# here`."""
    whole = HEAD + dedent(text)
    line = next(i for i, each in enumerate(whole.splitlines(), 1) if each.endswith("# here"))
    return edited(whole, [Edit("f.py", line, kind, code)])


def refusal(kind: str, text: str, *code: str) -> str:
    with pytest.raises(EditImpossible) as error:
        changed(kind, text, *code)
    return str(error.value)


def compiled(body: str, parameters: str = "x, mode") -> str:
    lines = "".join(f"    {line}\n" for line in dedent(body).splitlines())
    return f"@torch.compile\ndef f({parameters}):  # here\n{lines}"


def test_a_comparison_becomes_a_tensor_of_a_decorator() -> None:
    text = compiled("return x.tanh() if mode == 'a' else x.sin()", 'x, mode="a"')
    assert changed("computed_before", text, "of", "mode").endswith(
        dedent("""\
        def f_with_tensors(compiled):
            @functools.wraps(compiled)
            def call(x, mode="a"):
                return compiled(x, mode_is_a=torch.tensor(mode == 'a'))
            return call


        @f_with_tensors
        @torch.compile
        def f(x, *, mode_is_a):  # here
            return torch.where(mode_is_a, x.tanh(), x.sin())
        """)
    )


@pytest.mark.parametrize(
    ("body", "why"),
    [
        (
            "return getattr(x, mode)()",
            "`mode` is used for more than can be computed before the call",
        ),
        ("mode = mode.lower()\nreturn x if mode == 'a' else x + 1", "`mode` is changed"),
        ("flag = mode == 'a'\nreturn x + 1", "decides more than a branch"),
        ("if mode == 'a':\n    x.add_(1)\nreturn x * 2", "`x.add_(1)`"),
        ("if mode == 'a':\n    record(x)\nreturn x * 2", ""),
        ("if x.dim() > 1:\n    return x\nreturn x * TABLE[mode]", "`mode` is used for more"),
        ("for n in range(2):\n    x = x * (2 if mode.startswith('a') else 3)\nreturn x", "every"),
        ("if mode == x:\n    return x\nreturn x + 1", "used for more than can be computed before"),
        ("print(x, mode)\nreturn x.tanh() if mode == 'a' else x.sin()", "used for more"),
        ("y = roll(x)\nprint(mode)\nreturn y if mode == 'a' else x", "do more than compute"),
    ],
)
def test_a_use_that_must_stay_in_the_function_is_refused(body: str, why: str) -> None:
    assert why in refusal("computed_before", compiled(body), "of", "mode")


def test_a_table_is_looked_up_where_every_call_did() -> None:
    table = "TABLE = {'a': 1, 'b': 2}\n"
    body = "if x.dim() > 1:\n    return x\nreturn x * TABLE[mode]"
    why = refusal("computed_before", table + compiled(body), "of", "mode")
    assert why == "`TABLE[mode]` is not computed in every call"
    text = changed("computed_before", table + compiled("return x * TABLE[mode]"), "of", "mode")
    assert "table_value=torch.tensor(TABLE[mode])" in text


@pytest.mark.parametrize(
    ("parameters", "why"),
    [
        ("x, *mode", "more than named arguments"),
        ("x, mode=made()", "the default of `mode` is not a constant"),
        ("x", "`mode` is not a parameter"),
    ],
)
def test_the_decorator_has_the_same_parameters(parameters: str, why: str) -> None:
    text = compiled("return x if mode == 'a' else x + 1", parameters)
    assert why in refusal("computed_before", text, "of", "mode")


def test_a_function_that_is_used_uncompiled_too_keeps_its_parameters() -> None:
    text = """\
        def f(x, mode):  # here
            return x.tanh() if mode == "a" else x.sin()
        fast = torch.compile(f)
        slow = f
        """
    assert "used nowhere else" in refusal("computed_before", text, "of", "mode")


@pytest.mark.parametrize(
    ("uses", "why"),
    [
        ("fast = torch.compile(Model())\nfast(x, 'a')", ""),
        ("model = Model()\nfast = torch.compile(model)\nmodel.eval()\nfast(x, 'a')", ""),
        ("model = Model()\nfast = torch.compile(model)\nmodel(x, 'a')", "used uncompiled too"),
        ("model = Model()\nfast = torch.compile(model)\nrun(model)", "used uncompiled too"),
        ("fast = torch.compile(Model())\nfast.eval()", "used for more than calls"),
        ("fast = torch.compile(Model())\nslow = Model()", "is not made at one place"),
        ("fast = torch.compile(Model())\nclass More(Model):\n    pass", "is not made at one place"),
        ("run(torch.compile(Model()))", "in no variable of the module"),
        ("model = Model()\nmodel.compile()", "is not compiled at one place"),
    ],
)
def test_a_module_that_is_only_called_compiled(uses: str, why: str) -> None:
    text = "class Model(torch.nn.Module):\n    def forward(self, x, mode):  # here\n"
    text += f"        return x.tanh() if mode == 'a' else x.sin()\n{uses}\n"
    if why:
        assert why in refusal("computed_before", text, "of", "mode")
        return
    new = changed("computed_before", text, "of", "mode")
    assert "fast = forward_with_tensors(torch.compile(" in new
    assert (
        "    def call(x, mode):\n        return compiled(x, mode_is_a=torch.tensor(mode ==" in new
    )
    assert "    def forward(self, x, *, mode_is_a):" in new


@pytest.mark.parametrize(
    ("body", "why"),
    [
        ("a = random.random()\nb = random.choice([1.0])  # here\nreturn x * a * b", "their order"),
        ("if x.dim() > 1:\n    x = x * random.choice([1.0])  # here\nreturn x", "not computed in"),
        ("x = noisy(x)\nreturn x * random.choice([1.0])  # here", "may do more than compute"),
        ("scale = x.mean()\nreturn x * random.choice([scale])  # here", "not known before"),
        ("return x * chosen.choice([1.0])  # here", "may do more than compute a number"),
        ("names = [random.choice([1.0])]  # here\nreturn x, names", "may not be a tensor"),
    ],
)
def test_a_draw_that_would_come_at_another_time_is_refused(body: str, why: str) -> None:
    text = compiled(body, "x").replace("def f(x):  # here", "def f(x):")
    assert why in refusal("computed_before", text, "call", "choice")


def test_an_attribute_of_an_argument_is_read_once() -> None:
    text = compiled("return x * config.gain  # here", "x, config").replace(":  # here", ":", 1)
    assert "config_gain=torch.tensor(config.gain)" in changed("computed_before", text, "read")
    two = text.replace("config.gain", "config.gain * config.power")
    assert "does not read one attribute" in refusal("computed_before", two, "read")


def test_none_that_decides_more_than_an_operand_is_no_tensor() -> None:
    kept = compiled("if o.bias is not None:\n    x = x + o.bias\nreturn x", "x, o")
    text = changed("computed_before", kept, "neutral", "o.bias", "3")
    assert "o_bias=torch.zeros(3) if o.bias is None else o.bias" in text
    other = kept.replace("x + o.bias", "x.tanh() + o.bias")
    assert "more than one operand" in refusal("computed_before", other, "neutral", "o.bias", "3")


@pytest.mark.parametrize(
    ("use", "why"),
    [
        ("list(f(x))", ""),
        ("next(f(x))", "consumes everything it yields"),
        ("[y for y in f(x)]", ""),
        ("g = f", "consumes everything it yields"),
        ("for y in f(x):\n    break", "consumes everything it yields"),
    ],
)
def test_a_generator_that_is_left_early_stays_one(use: str, why: str) -> None:
    text = compiled("for n in range(3):\n    yield x * n", "x") + f"{use}\n"
    if why:
        assert why in refusal("generator_as_list", text)
    else:
        assert "items.append(x * n)\n    return items" in changed("generator_as_list", text)


def test_what_is_sent_into_a_generator_keeps_it_one() -> None:
    text = compiled("y = yield x\nreturn y", "x") + "list(f(x))\n"
    assert "gives it a value" in refusal("generator_as_list", text)


@pytest.mark.parametrize(
    ("kernel", "why"),
    [
        ("return x.abs()", ""),
        ("return x[x > 0]", "may do more than compute"),
        ("record(x)\nreturn x", "does more than compute"),
        ("return x.sqrt()", "is not evident"),
    ],
)
def test_a_kernel_that_is_more_than_operations_is_not_called_itself(kernel: str, why: str) -> None:
    lines = "".join(f"    {line}\n" for line in kernel.splitlines())
    text = f'def k(x):\n{lines}torch.library.impl("my::op", "cpu", k)\n'
    text += "def f(x):\n    return torch.ops.my.op(x)  # here\n"
    if why:
        assert why in refusal("own_kernel", text, "my::op")
    else:
        assert "return k(x)" in changed("own_kernel", text, "my::op")


def test_a_switch_with_a_reason_stays() -> None:
    text = 'import os\nos.environ["TORCH_COMPILE_DISABLE"] = "1"  # here\n'
    assert "DISABLE" not in changed("without_switch", text)
    why = refusal("without_switch", text.replace("os.environ", "# for debugging\nos.environ"))
    assert "may be there for a reason" in why
    assert "switches compilation off" in refusal("without_switch", text.replace('"1"', '"0"'))


@pytest.mark.parametrize("together", ["a, b = b, a", "a, b = pair"])
def test_names_that_depend_on_each_other_are_not_set_one_by_one(together: str) -> None:
    text = f"a = False\nb = False\ndef g():\n    global a, b\n    {together}\n"
    text += "def f(x):\n    return x * 2 if a else x  # here\n"
    refusal("flag_as_tensor", text, "a", "bool")


@pytest.mark.parametrize(
    ("function", "made"),
    [
        ("return int(v + 0.5)", "x.copy_((x.double() + 0.5).trunc())"),
        ("return abs(v) * 2", "x.copy_((x.double().abs() * 2))"),
        ("return round(v)", ""),
        ("return v if v > 0 else 0", ""),
        ("return int(v) % 7", ""),
        ("print(v)\n    return v", ""),
        ("return v / v", ""),
    ],
)
def test_a_function_of_each_element_becomes_operations(function: str, made: str) -> None:
    text = f"def each(v):\n    {function}\ndef f(x):\n    return x.apply_(each)  # here\n"
    if made:
        assert f"return {made}" in changed("applied", text)
    else:
        refusal("applied", text)


CHOSEN = """
def darker(x):
    return x - 0.5

def inverted(image):
    "Of one."
    return 1.0 - image

def logged(x):
    print(x)
    return x

@torch.compile
def f(x, change):  # here
    return change(x).clamp(0, 1)

for each in (darker, inverted):
    f(torch.rand(3), each)
"""


def test_a_function_that_is_passed_is_a_choice_between_what_each_computes() -> None:
    text = changed("computed_before", CHOSEN, "one_of", "change")
    assert "torch.where(change_is_darker, x - 0.5, 1.0 - x).clamp(0, 1)" in text
    assert "if change not in (darker, inverted):\n            raise ValueError(" in text


@pytest.mark.parametrize(
    ("before", "after", "why"),
    [
        ("return x - 0.5", "return x.add_(1)", "`x.add_(1)`"),
        ("return x - 0.5", "return secret(x)", "`secret(x)`"),
        ("def darker(x):", "def darker(x, by):", "`darker` takes different arguments"),
        ("(darker, inverted)", "(darker, darker)", "what `change` chooses between is not known"),
        ("change(x).clamp(0, 1)", "change", "does not choose what is called"),
        ("change(x).clamp(0, 1)", "keep(change)(change(x))", "`change` is used for more"),
    ],
)
def test_a_choice_that_is_not_evident_is_refused(before: str, after: str, why: str) -> None:
    assert before in CHOSEN
    assert why in refusal("computed_before", CHOSEN.replace(before, after), "one_of", "change")


def test_a_function_of_torch_that_a_string_names_is_one_of_those_seen() -> None:
    text = compiled("return getattr(torch, kind)(x)", "x, kind")
    done = changed("computed_before", text, "one_of", "kind", "relu", "tanh")
    assert "torch.where(kind_is_relu, torch.relu(x), torch.tanh(x))" in done
    assert "if kind not in ('relu', 'tanh'):" in done
    for value in ("rand_like", "manual_seed"):
        why = refusal("computed_before", text, "one_of", "kind", "relu", value)
        assert f"`torch.{value}(x)`" in why


def test_edits_of_one_function_share_a_decorator() -> None:
    whole = HEAD + compiled("y = x.tanh() if a == 'p' else x\nreturn y * 2 if b else y", "x, a, b")
    line = whole.splitlines().index("def f(x, a, b):  # here") + 1
    edits = [
        Edit("f.py", line, "computed_before", ("of", "a")),
        Edit("f.py", line + 1, "computed_before", ("of", "b", "flag")),
    ]
    text = edited(whole, edits)
    assert text.count("functools.wraps") == 1
    assert "b_2=torch.tensor(b)" in text


IN_PLACE = """
model = torch.nn.Sequential(torch.nn.Linear(8, 2))
model.compile(dynamic=True)  # here
optimizer = torch.optim.SGD(model.parameters())
for step in range(3):
    model(torch.ones(8))
"""


def test_what_torch_compile_returns_is_called_instead_of_the_module() -> None:
    text = changed("compile_returned", IN_PLACE)
    assert "compiled_model = torch.compile(model, dynamic=True)  # here" in text
    assert "    compiled_model(torch.ones(8))" in text
    assert "SGD(model.parameters())" in text


@pytest.mark.parametrize(
    ("before", "after", "why"),
    [
        ("model.compile(dynamic=True)", "zlib.compile(model)", "no statement"),
        ("for step", "model = model.eval()\nfor step", "`model` gets more than one value"),
        ("for step in range(3):", "def f():", "is not called after its compile"),
        ("    model(torch.ones(8))", "    f(lambda: model(torch.ones(8)))", "is not called after"),
        ("    model(torch.ones(8))", "    train(model)", "is not called after its compile"),
    ],
)
def test_a_module_that_is_called_elsewhere_is_left_alone(before: str, after: str, why: str) -> None:
    assert before in IN_PLACE
    assert why in refusal("compile_returned", IN_PLACE.replace(before, after))


def test_an_error_for_the_arguments_is_raised_before_the_call() -> None:
    body = "y = x.tanh()\nif x.shape[0] > n:\n    raise ValueError(f'too long: {n}')\nreturn y"
    text = edited(HEAD + compiled(body, "x, n"), [Edit("f.py", 7, "computed_before", ("raise",))])
    assert "def call(x, n):\n        if x.shape[0] > n:\n            raise ValueError(" in text
    assert "def f(x, n):  # here\n    y = x.tanh()\n    return y\n" in text


@pytest.mark.parametrize(
    ("before", "after", "why"),
    [
        ("x.shape[0] > n", "y.sum() > n", "`y` is computed in the function"),
        ("x.shape[0] > n", "x.sum() > n", "may do more than read a shape"),
        ("y = x.tanh()", "y = x.add_(1)", "`x` is changed in the function"),
        ("y = x.tanh()", "record(x)", "may do more than compute a value"),
        ("y = x.tanh()", "n = 4", "`n` is computed in the function"),
        ("raise ValueError", "return ValueError", "is not an error that the function raises"),
        ("n}')", "n}') from None", "is not an error that the function raises"),
    ],
)
def test_an_error_of_something_else_stays(before: str, after: str, why: str) -> None:
    body = "y = x.tanh()\nif x.shape[0] > n:\n    raise ValueError(f'too long: {n}')\nreturn y"
    assert before in body
    whole = HEAD + compiled(body.replace(before, after), "x, n")
    with pytest.raises(EditImpossible) as error:
        edited(whole, [Edit("f.py", 7, "computed_before", ("raise",))])
    assert why in str(error.value)
