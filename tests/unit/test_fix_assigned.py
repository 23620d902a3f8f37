"""What a call computes is assigned to a variable, where nothing is computed in another order."""

import pytest

from compilediag.fixes.edits.rewrite import rewrite
from compilediag.rules.changes import Edit, EditImpossible

pytest.importorskip("libcst")

HEAD = "import torch\ndef run():\n    for i in range(3):\n"
MARK = "torch._dynamo.maybe_mark_dynamic({}, 0)"


def changed(statement: str, call: str, *texts: str, head: str = HEAD) -> str:
    code = (call, *(part for text in texts for part in (text, MARK)))
    edit = Edit("f.py", head.count("\n") + 1, "assigned", code)
    return rewrite(f"{head}        {statement}\n", [edit]).removeprefix(head)


@pytest.mark.parametrize(
    ("statement", "call", "text", "after"),
    [
        ("y = f(x[i])  # c", "f(x[i])", "x[i]", "y = f(given)  # c"),
        ("loss = g(f(x.to(d)).a, y)", "f(x.to(d))", "x.to(d)", "loss = g(f(given).a, y)"),
        ("loss += f(x[0], y[0])", "f(x[0], y[0])", "x[0]", "loss += f(given, y[0])"),
        ("return 2 * f(k=x['a'][0])", "f(k=x['a'][0])", 'x["a"][0]', "return 2 * f(k=given)"),
        ("f(a.b, torch.randn(3))", "f(a.b, torch.randn(3))", "torch.randn(3)", "f(a.b, given)"),
    ],
)
def test_an_argument_is_assigned_and_passed(statement, call, text, after) -> None:
    value = text.replace('"', "'")
    lines = (f"given = {value}", MARK.format("given"), after)
    assert changed(statement, call, text) == "".join(f"        {line}\n" for line in lines)


def test_a_name_of_the_file_is_not_overwritten() -> None:
    head = HEAD.replace("run()", "run(given)")
    assert "given_2 = x[i]" in changed("y = f(x[i])", "f(x[i])", "x[i]", head=head)


@pytest.mark.parametrize(
    ("statement", "call", "text"),
    [
        ("y = g(a.pop(), f(x[i]))", "f(x[i])", "x[i]"),
        ("y = a.pop() + f(x[i])", "f(x[i])", "x[i]"),
        ("y = f(torch.randn(3), torch.randn(4))", "f(torch.randn(3), torch.randn(4))",
         "torch.randn(4)"),
        ("y = make()(x[i])", "make()(x[i])", "x[i]"),
        ("y = [f(x[i]) for i in a]", "f(x[i])", "x[i]"),
        ("y = a and f(x[i])", "f(x[i])", "x[i]"),
        ("y = f(x[i]) if a else b", "f(x[i])", "x[i]"),
        ("y = lambda: f(x[i])", "f(x[i])", "x[i]"),
        ("if f(x[i]): pass", "f(x[i])", "x[i]"),
        ("y = f(x[i]) + f(x[i])", "f(x[i])", "x[i]"),
        ("y = f(*x[i])", "f(*x[i])", "x[i]"),
        ("a[i].b += f(x[i])", "f(x[i])", "x[i]"),
        ("a.pop(); y = f(x[i])", "f(x[i])", "x[i]"),
        ("y = f(*a, x[i])", "f(*a, x[i])", "x[i]"),
        ("y = g(*a, f(x[i]))", "f(x[i])", "x[i]"),
    ],
)  # fmt: skip
def test_what_would_be_computed_in_another_order_stays(statement, call, text) -> None:
    with pytest.raises(EditImpossible):
        changed(statement, call, text)
