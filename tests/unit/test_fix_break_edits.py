"""Edits for graph breaks and reads: the exact text they make, and where they refuse."""

from __future__ import annotations

from textwrap import dedent

import pytest

from compilediag.fixes.codemods.edit import Edit, EditImpossible, edited

pytest.importorskip("libcst")

HEAD = "import torch\nimport torch.nn.functional as F\n"


def changed(kind: str, text: str, *code: str) -> str:
    """The text with the edit in the line that ends with `# here`, without the imports."""
    whole = HEAD + dedent(text)
    line = next(i for i, each in enumerate(whole.splitlines(), 1) if each.endswith("# here"))
    return edited(whole, [Edit("f.py", line, kind, code)]).removeprefix(HEAD)


def refusal(kind: str, text: str, *code: str) -> str:
    with pytest.raises(EditImpossible) as error:
        changed(kind, text, *code)
    return str(error.value)


def test_a_branch_becomes_a_choice_and_keeps_its_comments() -> None:
    before = """\
        def clip(x, limit):
            norm = x.norm()
            # long ones
            if norm > limit:  # here
                # as torch does
                x = x * (limit / norm)
            return x
        """
    assert changed("branch", before) == dedent("""\
        def clip(x, limit):
            norm = x.norm()
            # long ones
            # here
            # as torch does
            condition = norm > limit
            x = torch.where(condition, x * (limit / torch.where(condition, norm, 1.0)), x)
            return x
        """)


@pytest.mark.parametrize(
    ("branch", "chosen"),
    [
        (
            """\
            if x.sum() > 0:  # here
                return x.tanh()
            return x * 2
            """,
            """\
            # here
            return torch.where(x.sum() > 0, x.tanh(), x * 2)
            """,
        ),
        (
            """\
            if not x.any():  # here
                return x, y
            else:
                return y, y
            """,
            """\
            # here
            condition = x.any()
            return torch.where(condition, y, x), y
            """,
        ),
        (
            """\
            if y:  # here
                a = x.sin()
                b = a + 1
            else:
                a = x
                b = a * 2
            return a + b
            """,
            """\
            # here
            a = torch.where(y.bool(), x.sin(), x)
            b = torch.where(y.bool(), a + 1, a * 2)
            return a + b
            """,
        ),
        (
            """\
            if self.training and x.mean() > 0:  # here
                x = x * 2
            return x
            """,
            """\
            # here
            if self.training:
                x = torch.where(x.mean() > 0, x * 2, x)
            return x
            """,
        ),
        (
            """\
            return F.relu(x) if y > 0 else x.log()  # here
            """,
            """\
            return torch.where(y > 0, F.relu(x), torch.where(y > 0, 1.0, x).log())  # here
            """,
        ),
        (
            """\
            if x.mean() > 0:  # here
                part = x * 2
                y = part + 1
            return y
            """,
            """\
            # here
            condition = x.mean() > 0
            part = x * 2
            y = torch.where(condition, part + 1, y)
            return y
            """,
        ),
    ],
)
def test_forms_of_branches(branch: str, chosen: str) -> None:
    def whole(text: str) -> str:
        body = "".join(f"    {line}\n" for line in dedent(text).splitlines())
        return f"def forward(self, x, y):\n{body}"

    assert changed("branch", whole(branch)) == whole(chosen)


@pytest.mark.parametrize(
    ("body", "why"),
    [
        ("print(x)", "is not an assignment"),
        ("x += 1", "is not an assignment"),
        ("self.y = x", "is not an assignment"),
        ("x = torch.randn(3)", "may do more than compute"),
        ("x = self.layer(x)", "may do more than compute"),
        ("x = helper(x)", "may do more than compute"),
        ("x = x.add_(1)", "may do more than compute"),
        ("x = table[i]", "may do more than compute"),
        ("x = x // n", "may do more than compute"),
        ("x = F.dropout(x)", "may do more than compute"),
        ("x = x.std()", "may do more than compute"),
        ("x = x * self.weight", "may be a parameter that only one side needs"),
        ("q = x", "`q` may have no value"),
        ("x = 'a'", "is not a number or tensor"),
        ("x = None", "is not a number or tensor"),
        ("return x * 2", "only one side returns"),
        ("x = x * 2\n    x[0] = 1", "`x` is written into"),
        ("return", "one side returns nothing"),
    ],
)
def test_a_branch_that_does_more_stays(body: str, why: str) -> None:
    head = "def f(self, x, n):\n    if x.sum() > 0:  # here\n"
    text = f"{head}        {body}\n    z = x\n    return x, q\n"
    assert why in refusal("branch", text)


@pytest.mark.parametrize(
    ("test", "why"),
    [
        ("x.sum() > 0 or y", "more than one condition"),
        ("(n := x.sum()) > 0", "may do more than compute"),
        ("x.pop()", "may do more than compute"),
        ("x.isnan().any()", "would be computed with what is not finite"),
    ],
)
def test_a_condition_that_is_more_stays(test: str, why: str) -> None:
    text = f"def f(x, y):\n    if {test}:  # here\n        x = x * y\n    return x\n"
    assert why in refusal("branch", text)


def test_numbers_must_be_the_same_in_32_bits() -> None:
    text = "def f(x):\n    return x * ({} if x.sum() > 0 else 1.0)  # here\n"
    assert "torch.where(x.sum() > 0, 0.5, 1.0)" in changed("branch", text.format(0.5))
    assert "a different number in 32 bits" in refusal("branch", text.format(0.1))


@pytest.mark.parametrize(
    "body",
    [
        "n = 2 if x.sum() > 0 else 3  # here\n    return x * n, n",
        "return x, 2 if x.sum() > 0 else 3  # here",
        "print(f'{2 if x.sum() > 0 else 3}')  # here",
        "if x.sum() > 0:  # here\n        n = 2\n    else:\n        n = 3\n    return range(n)",
        "n = 3\n    if x.sum() > 0:  # here\n        n = 2\n    return range(n)",
        "if x.sum() > 0:  # here\n        return 2\n    return 3",
        "if n:\n        pass\n    elif x.sum() > 0:  # here\n        x = x / x.sum()\n    return x",
        "if x.isnan():  # here\n        x = x * 2\n    elif n:\n        x = x * 3\n    return x",
        "if x.sum() > 0:  # here\n        x = x * 2\n    elif n:\n        y = x\n    return x",
        "if x.sum() > 0:  # here\n        y = x * 2\n    elif n:\n        y = x\n    return y",
        "if x.sum() > 0:  # here\n        return x\n    elif n:\n        return x, n\n    return x",
        "if x.sum() > 0: x = x * 2  # here\n    return x",
        "while x.sum() > 0:  # here\n        x = x * 2\n    return x",
    ],
)
def test_what_is_no_choice_between_tensors_stays(body: str) -> None:
    assert refusal("branch", f"def f(x, n):\n    {body}\n")


CHAIN = """\
def f(x, mode):
    if {}:
        y = x * 2
    elif x.sum() > 0:  # here
        y = x + 1
    else:
        y = x.abs()
    return y
"""


def test_a_chain_is_one_choice_in_another() -> None:
    def lines(head: str, *code: str) -> str:
        return " ".join(changed("branch", CHAIN.format(head), *code).split())

    inner = "torch.where(x.sum() > 0, x + 1, x.abs())"
    assert f"y = torch.where(x.max() > 1, x * 2, {inner})" in lines("x.max() > 1", "4", "6")
    assert f"else: y = {inner}" in lines("mode == 'a'")


def test_both_branches_of_a_chain_are_edited_together() -> None:
    text = HEAD + CHAIN.format("x.max() > 1")
    edits = [Edit("f.py", line, "branch", ("4", "6")) for line in (4, 6)]
    assert edited(text, edits) == edited(text, edits[:1]) == edited(text, edits[1:])


@pytest.mark.parametrize(
    ("statement", "written"),
    [
        ("x[m] = y[m] * 2", "x.copy_(torch.where(m, y * 2, x))"),
        ("x[x < 0] *= 2", "x.copy_(torch.where(x < 0, x * 2, x))"),
        ("x[m] += y[m] - 1", "x.copy_(torch.where(m, x + (y - 1), x))"),
        ("x[m] = 0.0", "x.masked_fill_(m, 0.0)"),
    ],
)
def test_elements_of_a_mask_are_written_in_place(statement: str, written: str) -> None:
    assert written in changed("masked", f"def f(x, y, m):\n    {statement}  # here\n    return x\n")


@pytest.mark.parametrize(
    "statement",
    [
        "x[m] = y",
        "x[m] = y[n]",
        "x[m] = y[m].log()",
        "x[m] /= y[m]",
        "x[m] = y[m] * z",
        "x[m] **= 2",
    ],
)
def test_other_elements_stay(statement: str) -> None:
    assert refusal("masked", f"def f(x, y, z, m, n):\n    {statement}  # here\n")


def test_numbers_of_a_list_that_is_summed_stay_tensors() -> None:
    text = "def f(x):\n    seen = []\n    seen.append(x.sum().item())  # here\n    return {}\n"
    found = changed("as_tensor", text.format("x * (sum(seen) / len(seen))"))
    assert "seen.append(x.sum().detach())" in found
    for kept in ("x, seen", "x, sum(seen)", "x * seen[0]", "x * max(seen)"):
        assert "more than its sum" in refusal("as_tensor", text.format(kept))


def test_parameters_that_both_sides_need_may_be_read() -> None:
    text = (
        "class M:\n    def __init__(self):\n        self.scale = 2.0\n"
        "    def f(self, x):\n        if x.sum() > 0:  # here\n            x = x * self.scale\n"
        "        return x{}\n"
    )
    assert "torch.where(x.sum() > 0, x * self.scale, x)" in changed("branch", text.format(""))
    parameter = text.replace("2.0", "make()")
    assert "may be a parameter" in refusal("branch", parameter.format(""))
    read = parameter.format(" * self.scale")
    assert "torch.where(x.sum() > 0, x * self.scale, x)" in changed("branch", read)


def test_errors_are_asserted() -> None:
    text = """\
        def f(x):
            # sane?
            if x.isnan().any() or x.max() > 9:  # here
                raise ValueError(f"bad {x} \\"here\\"")
            return x
        """
    assert changed("branch", text) == dedent("""\
        def f(x):
            # sane?
            # here
            torch._assert_async(~x.isnan().any(), "ValueError: bad {x} \\\\\\"here\\\\\\"")
            torch._assert_async(~(x.max() > 9), "ValueError: bad {x} \\\\\\"here\\\\\\"")
            return x
        """)
    alone = 'def f(x):\n    if {}:  # here\n        raise E("m")\n'
    for test, asserted in (
        ("not x.all()", "x.all()"),
        ("x", "torch.logical_not(x)"),
    ):
        expected = f'torch._assert_async({asserted}, "E: m")'
        assert expected in changed("branch", alone.format(test))
    assert 'if n > 1:\n        torch._assert_async(~x.any(), "E: m")' in changed(
        "branch", alone.format("n > 1 and x.any()")
    )
    checked = "def f(x):\n    assert x.sum() > 0, f'bad {x}'  # here\n"
    assert 'torch._assert_async(x.sum() > 0, "bad {x}")  # here' in changed("branch", checked)
    caught = alone.format("x.any()") + "try:\n    f(1)\nexcept (E, TypeError):\n    pass\n"
    assert "the file catches (E, TypeError)" in refusal("branch", caught)
    more = alone.format("x.any()").replace("raise", "print(x)\n        raise")
    assert "does more than raise" in refusal("branch", more)


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (
            "s = x.abs().max().item()  # here\n    return x / s",
            "s = x.abs().max().detach()  # here",
        ),
        ("s = x[0].item()  # here\n    return x / s", "s = x[0].detach().clone()  # here"),
        ("return x * float(x.sum())  # here", "return x * x.sum().detach()  # here"),
        ("return x * int(x.sum())  # here", "return x * x.sum().detach().long()  # here"),
        ("return y[x.item()].tanh()  # here", "return y[x.reshape(1)].squeeze(0).tanh()"),
        ("return torch.clamp(y, max=x.item())  # here", "return torch.clamp(y, max=x.detach())"),
    ],
)
def test_numbers_for_arithmetic_stay_tensors(before: str, after: str) -> None:
    assert after in changed("as_tensor", f"def f(x, y):\n    {before}\n")


@pytest.mark.parametrize(
    "body",
    [
        "s = x.sum().item()  # here\n    return x * s, s",
        "s = x.sum().item()  # here\n    print(s)",
        "s = x.sum().item()  # here\n    return x if s in y else s * x",
        "s = x.sum().item()  # here\n    y[s] = x",
        "s = x.sum().item()  # here\n    return x.view(s, -1)",
        "s = x.sum().item()  # here\n    return lambda: f'{s}'",
        "self.s = x.sum().item()  # here",
        "y.append(x.sum().item())  # here",
        "z = y[x.item()]  # here\n    z.add_(1)",
        "y[x.item()].add_(1)  # here",
        "return 2 * y[x.item(), 0]  # here",
        "s = x.item()  # here\n    return y[s] * 2",
        "return x.sum().item() + y.sum().item()  # here",
        "s = read(x).item()  # here\n    return x * s",
    ],
)
def test_numbers_for_anything_else_stay_numbers(body: str) -> None:
    assert refusal("as_tensor", f"def f(self, x, y):\n    {body}\n")


def test_numbers_are_read_before_the_loop() -> None:
    text = """\
        def f(levels):
            out = torch.zeros(4, 4)
            # each
            for a in range(4):
                for b in range(4):
                    out[a, b] = 2.0 ** levels[a, b].item()  # here
            return out
        """
    assert changed("read_at_once", text) == dedent("""\
        def f(levels):
            out = torch.zeros(4, 4)
            # each
            levels_rows = levels.flatten(1).tolist()
            for a in range(4):
                for b in range(4):
                    out[a, b] = 2.0 ** levels_rows[a][b]  # here
            return out
        """)
    nested = "def f(t):\n    return [[-v.item() for v in row] for row in t]  # here\n"
    assert changed("read_at_once", nested) == (
        "def f(t):\n    return [[-v for v in row] for row in t.flatten(1).tolist()]  # here\n"
    )
    counted = "def f(t):\n    for i, v in enumerate(t):\n        s = s + i * float(v)  # here\n"
    assert changed("read_at_once", counted) == (
        "def f(t):\n    for i, v in enumerate(t.flatten().tolist()):\n"
        "        s = s + i * float(v)  # here\n"
    )


@pytest.mark.parametrize(
    "body",
    [
        "for i in range(3):\n        s += t[i].item()  # here\n        t[i] = 0",
        "for i in range(3):\n        s += t[i].item()  # here\n        other[i] = 0",
        "for i in range(3):\n        s += t[i].item()  # here\n        t.mul_(2)",
        "for i in range(3):\n        s += t[i].item()  # here\n        step(t)",
        "for i in range(3):\n        if t is not None:\n            s += t[i].item()  # here",
        "for i in range(3):\n        t = t * 2\n        s += t[i].item()  # here",
        "u = t.view(-1)\n    for i in range(3):\n        s = t[i].item()  # here\n        u[i] = 0",
        "for i in chosen:\n        s += t[i].item()  # here",
        "for v in t:\n        s += v.item()  # here\n        keep(v)",
        "for v in t:\n        s += v.item()  # here\n    return v",
        "for i in range(3):\n        s += t[i, :1].item()  # here",
        "s = t[0].item()  # here",
    ],
)
def test_reads_that_the_loop_may_change_stay(body: str) -> None:
    assert refusal("read_at_once", f"def f(t, other):\n    {body}\n")


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("x[m].sum()", "torch.where(m, x, 0).sum()"),
        ("torch.mean(x[x > 0])", "torch.where(x > 0, x, 0).sum() / (x > 0).sum()"),
        ("F.mse_loss(x[m], y[m])", "torch.where(m, (x - y).square(), 0).sum() / m.sum()"),
        (
            "1 - (x[m] - y[m]).abs().mean()",
            "1 - (torch.where(m, (x - y).abs(), 0).sum() / m.sum())",
        ),
    ],
)
def test_masked_elements_are_reduced_in_place(before: str, after: str) -> None:
    text = f"def f(x, y, m):\n    return {before}  # here\n"
    assert changed("masked", text) == f"def f(x, y, m):\n    return {after}  # here\n"


@pytest.mark.parametrize(
    "value",
    [
        "x[m].log().sum()",
        "(x[m] / y[m]).sum()",
        "(x[m] - y).sum()",
        "(x[m] - y[n]).sum()",
        "x[m].softmax(0).sum()",
        "x[m].sum(0)",
        "x[m]",
        "x[m].sum() + y[m].sum()",
        "F.mse_loss(x[m], y[m], reduction='none')",
    ],
)
def test_other_masked_elements_stay(value: str) -> None:
    assert refusal("masked", f"def f(x, y, m, n):\n    return {value}  # here\n")


MESSAGES = """\
import sys, time, logging
from tqdm import tqdm
log = logging.getLogger(__name__)
bar = tqdm(total=3)
def note(x):
    "A message."
    print("x", x)
    log.info("y")
def more(x):
    print(x)
    x.add_(1)
"""


@pytest.mark.parametrize(
    "call",
    [
        "note(x)",
        "tqdm.write(f'{x.item()}')",
        "sys.stdout.write('a')",
        "log.info(len(x))",
        "bar.update(1)",
    ],
)
def test_what_only_writes_text_is_left_out(call: str) -> None:
    before = f"{MESSAGES}def f(x):\n    {call}  # here\n"
    after = f"    if not torch.compiler.is_compiling():\n        {call}  # here\n"
    assert changed("message", before).endswith(after)


@pytest.mark.parametrize(
    "call",
    [
        "more(x)",
        "print(q.pop())",
        "x.append(1)",
        "y = note(x)",
        "print(y := x)",
        "other.info(x)",
        "file.write('a')",
    ],
)
def test_what_does_more_than_write_text_stays(call: str) -> None:
    assert refusal("message", f"{MESSAGES}def f(x):\n    {call}  # here\n")


def test_clocks_are_left_out_where_only_messages_use_them() -> None:
    text = (
        f"{MESSAGES}def f(x):\n    start = time.perf_counter()  # here\n    y = x + 1\n"
        "    took = time.perf_counter() - start\n    print(took)\n    return {}\n"
    )
    new = changed("message", text.format("y"))
    guard = "    if not torch.compiler.is_compiling():\n        "
    assert new.endswith(
        f"{guard}start = time.perf_counter()  # here\n    y = x + 1\n"
        f"{guard}took = time.perf_counter() - start\n{guard}print(took)\n    return y\n"
    )
    assert "more than write text" in refusal("message", text.format("y, took"))


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (
            "if torch.isnan(x).any():  # here\n        print(x.item())",
            "GUARD and torch.isnan(x).any():  # here\n        print(x.item())",
        ),
        (
            "if x.sum() > 1 or a:  # here\n        note(x)",
            "GUARD and (x.sum() > 1 or a):  # here\n        note(x)",
        ),
        (
            "if torch.isnan(x): print(1)  # here",
            "GUARD and torch.isnan(x): print(1)  # here",
        ),
        (
            "if a:\n        print(1)\n    elif x > 1:  # here\n        print(2)",
            (
                "GUARD:\n        if a:\n            print(1)\n"
                "        elif x > 1:  # here\n            print(2)"
            ),
        ),
        (
            "if x > 1:  # here\n        print(1)\n    else:\n        print(2)",
            (
                "GUARD:\n        if x > 1:  # here\n            print(1)\n"
                "        else:\n            print(2)"
            ),
        ),
        (
            "v = x.item()  # here\n    if v > 1:\n        print(v)",
            "GUARD:\n        v = x.item()  # here\n    GUARD and v > 1:\n        print(v)",
        ),
        (
            "v = x.item()  # here\n    if x.dim():\n        print(v)",
            (
                "GUARD:\n        v = x.item()  # here\n    if x.dim():\n"
                "        GUARD:\n            print(v)"
            ),
        ),
        (
            "v = float(x)  # here\n    w = 2 * v\n    print(w)",
            (
                "GUARD:\n        v = float(x)  # here\n    GUARD:\n"
                "        w = 2 * v\n    GUARD:\n        print(w)"
            ),
        ),
    ],
)
def test_what_is_read_for_messages_only_is_left_out(before: str, after: str) -> None:
    text = f"{MESSAGES}def f(x, a):\n    {{}}\n    return x\n"
    after = after.replace("GUARD", "if not torch.compiler.is_compiling()")
    assert changed("message", text.format(before)) == text.format(after)


@pytest.mark.parametrize(
    "body",
    [
        "if x > 1:  # here\n        x = x + 1",
        "if x > 1:  # here\n        raise ValueError",
        "if x > 1:  # here\n        print(1)\n    else:\n        x = -x",
        "if x > 1:  # here\n        print(1)\n    elif more(x):\n        print(2)",
        "if q.pop() > x:  # here\n        print(1)",
        "if (y := x.sum()) > 1:  # here\n        print(y)",
        "v = x.item()  # here\n    x = x * v",
        "v = x.item()  # here\n    if v > 1:\n        x = -x",
        "v = x.item()  # here\n    return v",
        "v = w = x.item()  # here\n    print(v)",
        "a.v = x.item()  # here\n    print(a.v)",
        "global v\n    v = x.item()  # here\n    print(v)",
        "v = x.sum()  # here\n    print(v)",
    ],
)
def test_what_is_read_for_more_than_messages_stays(body: str) -> None:
    assert refusal("message", f"{MESSAGES}def f(x, a):\n    {body}\n    return x\n")


def test_a_function_is_not_disabled_any_more() -> None:
    text = "{}def helper(x):  # here\n    return x\n"
    for decorator in ("@torch.compiler.disable\n", "@torch._dynamo.disable(recursive=False)\n"):
        assert changed("without_disable", text.format(decorator), "helper") == text.format("")
    for decorator in (
        "@torch.compiler.disable(reason='it fails')\n",
        "@torch.compiler.disable  # it fails\n",
        "@other.disable\n",
    ):
        assert refusal("without_disable", text.format(decorator), "helper")


def test_arguments_of_calls() -> None:
    text = "g = {}\nf(g)  # here\n"
    assert changed("as_list", "f(a for a in b)  # here\n", "f(a for a in b)") == (
        "f([a for a in b])  # here\n"
    )
    assert changed("as_list", text.format("map(h, b)"), "f(g)") == text.format("list(map(h, b))")
    own = "def made():\n    yield 1\nf(made(), 2)  # here\n"
    assert "f(list(made()), 2)" in changed("as_list", own, "f(made(), 2)")
    assert refusal("as_list", text.format("map(h, b)") + "next(g)\n", "f(g)")
    assert refusal("as_list", text.format("other()"), "f(g)")
    assert refusal("as_list", text.format("map(h, b)"), "f(h)")
    assert (
        changed("as_dense", "f(a, b)  # here\n", "f(a, b)", "a") == "f(a.to_dense(), b)  # here\n"
    )
    assert refusal("as_dense", "f(a, a)  # here\n", "f(a, a)", "a")
