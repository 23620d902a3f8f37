"""Hooks that are left to Python, and statements before a call: the text that the edits make."""

from textwrap import dedent

import pytest

from compilediag.fixes.edits.rewrite import rewrite, show_edit
from compilediag.rules.changes import Edit, EditImpossible

pytest.importorskip("libcst")

HEAD = "import functools\nimport torch\n\n"


def changed(kind: str, text: str, *code: str) -> str:
    """The text with the edit in the line that ends with `# here`, without the imports."""
    whole = HEAD + dedent(text)
    line = next(i for i, each in enumerate(whole.splitlines(), 1) if each.endswith("# here"))
    return rewrite(whole, [Edit("f.py", line, kind, code)]).removeprefix(HEAD)


def refusal(kind: str, text: str, *code: str) -> str:
    with pytest.raises(EditImpossible) as error:
        changed(kind, text, *code)
    return str(error.value)


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
    line, code = show_edit(HEAD + DISABLED, Edit("f.py", 6, "disabled_hook")) or (0, "")
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
