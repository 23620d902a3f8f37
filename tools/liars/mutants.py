"""Random small faults in a program's text, as a hurried hand or a careless agent makes them."""

from __future__ import annotations

import ast
import copy
import difflib
import random
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple


class Mutant(NamedTuple):
    """A text with a fault."""

    source: str
    kind: str
    edit: str
    """Lines that are gone and new."""


class _Site(NamedTuple):
    """One place in a tree."""

    parent: ast.AST
    field: str
    at: int | None
    """In a list."""
    node: Any
    names: tuple[str, ...]
    """That the function around it, or the module, assigns."""

    def put(self, *new: Any) -> None:
        """Replaces the node, in a list by any number of nodes."""
        if self.at is None:
            setattr(self.parent, self.field, new[0])
        else:
            getattr(self.parent, self.field)[self.at : self.at + 1] = new


_OPERATORS: Mapping[type[ast.AST], tuple[type[ast.AST], ...]] = {
    ast.Add: (ast.Sub, ast.Mult),
    ast.Sub: (ast.Add,),
    ast.Mult: (ast.Div, ast.Add),
    ast.Div: (ast.Mult, ast.FloorDiv),
    ast.Mod: (ast.FloorDiv, ast.Mult),
    ast.Lt: (ast.LtE, ast.Gt),
    ast.Gt: (ast.GtE, ast.Lt),
    ast.LtE: (ast.Lt,),
    ast.GtE: (ast.Gt,),
    ast.Eq: (ast.NotEq,),
    ast.NotEq: (ast.Eq,),
    ast.Is: (ast.IsNot,),
    ast.IsNot: (ast.Is,),
    ast.And: (ast.Or,),
    ast.Or: (ast.And,),
    ast.In: (ast.NotIn,),
    ast.NotIn: (ast.In,),
}
_NAMESAKES = (
    ("max", "min"), ("sum", "mean"), ("sin", "cos"), ("abs", "square"), ("relu", "tanh"),
    ("gelu", "silu"), ("add_", "sub_"), ("mul_", "div_"), ("zeros", "ones"), ("randn", "rand"),
    ("sigmoid", "tanh"), ("float", "bfloat16"), ("backward", "item"), ("square", "exp"),
    ("train", "eval"), ("append", "count"), ("SGD", "Adam"), ("log_softmax", "softmax"),
)  # fmt: skip
_RENAMED = {**dict(_NAMESAKES), **{new: old for old, new in _NAMESAKES}}
_KEPT = (ast.FunctionDef, ast.ClassDef, ast.Import, ast.ImportFrom, ast.Return)

_TENSORS = {"x", "h", "y", "loss"}
"""Names of tensors in most programs: an edit of tensors elsewhere only raises an error."""

_Edit = Callable[[_Site, random.Random], bool]
"""Makes an edit at a place; False where none fits."""


def make_mutant(source: str, seed: int) -> Mutant | None:
    """Puts one fault, seldom two, into a program; None where no place was found."""
    rng = random.Random(seed)  # noqa: S311
    plain = text = ast.unparse(ast.parse(source))
    kinds: list[str] = []
    for _ in range(1 if rng.random() < 0.85 else 2):
        text, kind = _mutate(text, rng)
        kinds += [kind] if kind else []
    if text == plain:
        return None
    lines = difflib.unified_diff(plain.splitlines(), text.splitlines(), n=0, lineterm="")
    edits = [f"{line[0]} {line[1:].strip()}" for line in [*lines][2:] if line[0] in "+-"]
    return Mutant(text, " and ".join(kinds), " ".join(edits))


def _mutate(source: str, rng: random.Random) -> tuple[str, str]:
    """The text with a fault of a kind; as it is where no place was found."""
    for _ in range(60):
        tree = ast.parse(source)
        kind = rng.choice([*_EDITS])
        site = rng.choice([*_iterate_sites(tree)])
        if _EDITS[kind](site, rng):
            text = ast.unparse(ast.fix_missing_locations(tree))
            if text != source:
                return text, kind
    return source, ""


def _iterate_sites(tree: ast.Module) -> Iterator[_Site]:
    """Expressions and statements below the imports."""

    def visit(node: ast.AST, names: tuple[str, ...]) -> Iterator[_Site]:
        if isinstance(node, (ast.Module, ast.FunctionDef)):
            assigned = [
                each.id if isinstance(each, ast.Name) else each.arg
                for each in ast.walk(node)
                if (isinstance(each, ast.Name) and isinstance(each.ctx, ast.Store))
                or (isinstance(each, ast.arg) and each.arg != "self")
            ]
            names = tuple(dict.fromkeys(assigned))
        for field, value in ast.iter_fields(node):
            many = isinstance(value, list)
            for at, child in enumerate(value if many else [value]):  # pyright: ignore[reportUnknownVariableType,reportUnknownArgumentType]
                if isinstance(child, (ast.Import, ast.ImportFrom)):
                    continue
                if isinstance(child, (ast.expr, ast.stmt)):
                    yield _Site(node, field, at if many else None, child, names)
                if isinstance(child, ast.AST):
                    yield from visit(child, names)

    yield from visit(tree, ())


# --- the edits ------------------------------------------------------------------------------------


def _swap_operator(site: _Site, rng: random.Random) -> bool:
    node = site.node
    if isinstance(node, ast.Compare):
        node.ops = [_swapped(node.ops[0], rng), *node.ops[1:]]
        return True
    if isinstance(node, (ast.BinOp, ast.AugAssign, ast.BoolOp)) and type(node.op) in _OPERATORS:
        node.op = _swapped(node.op, rng)
        return True
    return False


def _swapped(operator: ast.AST, rng: random.Random) -> Any:
    others = _OPERATORS.get(type(operator))
    return rng.choice(others)() if others else operator


def _change_constant(site: _Site, rng: random.Random) -> bool:
    value = getattr(site.node, "value", None)
    if not isinstance(site.node, ast.Constant) or value is None or isinstance(value, (str, bytes)):
        return False
    if isinstance(value, bool):
        site.node.value = not value
    elif isinstance(value, int):
        site.node.value = rng.choice((value + 1, value - 1, 0, 1, value * 2))
    else:
        site.node.value = rng.choice((value * 1.01, value * 2, value * 0.5, 0.0, 1.0, value + 0.1))
    return site.node.value != value


def _change_branch(site: _Site, rng: random.Random) -> bool:
    node = site.node
    if isinstance(node, ast.If):
        choice = rng.randrange(3)
        if choice == 0:
            node.test = ast.UnaryOp(ast.Not(), node.test)
        elif choice == 1:
            site.put(*node.body)
        else:
            site.put(*(node.orelse or [ast.Pass()]))
        return True
    if isinstance(node, ast.IfExp):
        site.put(rng.choice((node.body, node.orelse)))
        return True
    return False


def _swap_order(site: _Site, rng: random.Random) -> bool:
    """Two neighbouring statements, or two arguments."""
    if isinstance(site.node, ast.Call) and len(site.node.args) > 1:
        first, second, *others = site.node.args
        site.node.args = [second, first, *others]
        return True
    if site.at is None or isinstance(site.node, _KEPT) or not isinstance(site.node, ast.stmt):
        return False
    body: list[ast.stmt] = getattr(site.parent, site.field)
    if site.at + 1 >= len(body) or isinstance(body[site.at + 1], _KEPT):
        return False
    body[site.at : site.at + 2] = [body[site.at + 1], body[site.at]]
    return True


def _drop_argument(site: _Site, rng: random.Random) -> bool:
    if not isinstance(site.node, ast.Call) or not (site.node.args or site.node.keywords):
        return False
    given: list[Any] = site.node.keywords or site.node.args
    del given[rng.randrange(len(given))]
    return True


def _remove_call(site: _Site, rng: random.Random) -> bool:
    """`f(x)` and `x.f()` become `x`."""
    if not isinstance(site.node, ast.Call):
        return False
    if isinstance(site.node.func, ast.Attribute) and not isinstance(site.node.func.value, ast.Name):
        site.put(site.node.func.value)
    elif site.node.args:
        site.put(rng.choice(site.node.args))
    else:
        return False
    return True


def _remove_statement(site: _Site, rng: random.Random) -> bool:
    if not isinstance(site.node, ast.stmt) or isinstance(site.node, (*_KEPT, ast.For, ast.With)):
        return False
    site.put(ast.Pass())
    return True


def _repeat_statement(site: _Site, rng: random.Random) -> bool:
    if not isinstance(site.node, (ast.Assign, ast.AugAssign, ast.Expr)):
        return False
    site.put(site.node, copy.deepcopy(site.node))
    return True


def _do_sometimes(site: _Site, rng: random.Random) -> bool:
    """In the loop, a statement that only some steps execute."""
    if not isinstance(site.parent, ast.For) or not isinstance(site.node, (ast.Expr, ast.AugAssign)):
        return False
    test = rng.choice(("step % 3", "step < 5", "step != 3", "step > 0"))
    site.put(ast.If(ast.parse(test, mode="eval").body, [site.node], []))
    return True


def _wrap(site: _Site, texts: tuple[str, ...], rng: random.Random) -> bool:
    """Puts a tensor of an assignment or a return into another expression."""
    usable = isinstance(site.node, (ast.Name, ast.Call, ast.BinOp, ast.Attribute))
    around = isinstance(site.parent, (ast.Assign, ast.Return, ast.BinOp, ast.Call))
    read = {each.id for each in ast.walk(site.node) if isinstance(each, ast.Name)}
    if not usable or not around or site.field in ("targets", "func") or not read & _TENSORS:
        return False
    text = rng.choice(texts).format(f"({ast.unparse(site.node)})")
    site.put(ast.parse(text, mode="eval").body)
    return True


def _negate(site: _Site, rng: random.Random) -> bool:
    return _wrap(site, ("-{}", "{} + 1e-2", "abs({})", "1 - {}"), rng)


def _detach(site: _Site, rng: random.Random) -> bool:
    return _wrap(site, ("{}.detach()", "{}.detach().clone()", "{}.data"), rng)


def _lower_precision(site: _Site, rng: random.Random) -> bool:
    return _wrap(site, ("{}.bfloat16().float()", "{}.half().float()", "{}.round(decimals=2)"), rng)


def _change_shape(site: _Site, rng: random.Random) -> bool:
    return _wrap(
        site, ("{}.mean(-1, keepdim=True)", "{}.flip(0)", "{}[:1]", "{}.flip(-1)", "{}[0]"), rng
    )


def _use_other_name(site: _Site, rng: random.Random) -> bool:
    node = site.node
    if not isinstance(node, ast.Name) or not isinstance(node.ctx, ast.Load):
        return False
    others = [name for name in site.names if name != node.id]
    if node.id not in site.names or not others:
        return False
    node.id = rng.choice(others)
    return True


def _use_namesake(site: _Site, rng: random.Random) -> bool:
    if not isinstance(site.node, ast.Attribute) or site.node.attr not in _RENAMED:
        return False
    site.node.attr = _RENAMED[site.node.attr]
    return True


def _shorten_loop(site: _Site, rng: random.Random) -> bool:
    if not isinstance(site.node, ast.For):
        return False
    text = ast.unparse(site.node.iter)
    shorter = rng.choice(("list({})[1:]", "list({})[:-1]", "[*reversed({})]"))
    site.node.iter = ast.parse(shorter.format(text), mode="eval").body
    return True


_EDITS: Mapping[str, _Edit] = {
    "operator": _swap_operator,
    "constant": _change_constant,
    "branch": _change_branch,
    "order": _swap_order,
    "argument dropped": _drop_argument,
    "call removed": _remove_call,
    "statement removed": _remove_statement,
    "statement repeated": _repeat_statement,
    "only sometimes": _do_sometimes,
    "negation": _negate,
    "detach": _detach,
    "precision": _lower_precision,
    "shape": _change_shape,
    "other name": _use_other_name,
    "other function": _use_namesake,
    "loop": _shorten_loop,
}
