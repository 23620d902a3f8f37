"""A function that an argument chooses, as a choice between what each computes: only that can be
decided by a tensor."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import libcst

from compilediag.fixes.codemods.edit import Edit, EditImpossible
from compilediag.fixes.codemods.names import bound_in, parameters_of, uses_of
from compilediag.fixes.codemods.purity import code_of, scope_of
from compilediag.fixes.codemods.tree import Replacement, Source, with_edits

CHOICE = "one_of"
"""Of an edit "computed_before": ("one_of", "activation", "relu", "tanh") for
`getattr(torch, activation)(x)`; ("one_of", "change") for `change(x)` with functions of the file."""

_NAMESPACES = ("torch", "torch.nn.functional")


def with_choices(source: Source, edits: Sequence[Edit]) -> Source:
    """The file with `torch.relu(x) if activation == "relu" else torch.tanh(x)` for each such call,
    every statement on the lines where it was.

    Raises:
        EditImpossible: it is not known what the argument chooses between.
    """
    found = [
        each for edit in edits if edit.code[:1] == (CHOICE,) for each in _written(source, edit)
    ]
    return Source(with_edits(source, found).code) if found else source


def unexpected(source: Source, function: libcst.FunctionDef, edit: Edit) -> str:
    """Statements that raise where the argument is nothing of that, as no side would be right."""
    name, values = edit.code[1], edit.code[2:]
    known = ", ".join([repr(each) for each in values] or [*_of_file(source, function)])
    raised = f'raise ValueError(f"{{{name}!r}} is none of those that are compiled")'
    return f"if {name} not in ({known}):\n    {raised}"


def function_at(source: Source, line: int) -> libcst.FunctionDef:
    """The innermost function with a line, that of a decorator of it too.

    Raises:
        EditImpossible: there is none.
    """
    found = [
        each
        for each in source.below(source.module, libcst.FunctionDef)
        if any(line in source.lines_of(part) for part in (each, *each.decorators))
    ]
    if not found:
        raise EditImpossible(f"line {line} is not inside a function")
    return found[-1]


def is_function_of_module(source: Source, name: str) -> bool:
    """Whether a name is that of one function of the module, and nothing else."""
    defined = [each for each in source.module.body if isinstance(each, libcst.FunctionDef)]
    one = sum(each.name.value == name for each in defined) == 1
    return one and [*bound_in(source, source.module)].count(name) == 1


def _written(source: Source, edit: Edit) -> Iterator[Replacement]:
    name, values = edit.code[1], edit.code[2:]
    function = function_at(source, edit.line)
    written = 0
    for call in source.below(function.body, libcst.Call):
        space = space_of_getattr(source, call.func, name)
        if not space and code_of(call.func) != name:
            continue
        given = [each.with_changes(comma=libcst.MaybeSentinel.DEFAULT) for each in call.args]
        if space:
            passed = ", ".join(map(code_of, given))
            sides = {f"{name} == {value!r}": f"{space}.{value}({passed})" for value in values}
        else:
            bodies = _of_file(source, function).items()
            sides = {f"{name} is {key}": _inlined(each, given) for key, each in bodies}
        if len(sides) < 2 or len(source.lines_of(call)) > 1:
            raise EditImpossible(f"what `{name}` chooses between is not known")
        *others, (_, last) = sides.items()
        tests = "".join(f"{side} if {test} else " for test, side in others)
        yield Replacement(call, _Put(f"({tests}{last})"))
        written += 1
    if not written:
        raise EditImpossible(f"`{name}` does not choose what is called")


@dataclass(frozen=True)
class _Put:
    """An expression in place of another one."""

    text: str

    def __call__(self, _: libcst.CSTNode) -> libcst.BaseExpression:
        return libcst.parse_expression(self.text)


def space_of_getattr(source: Source, called: libcst.BaseExpression, name: str) -> str:
    """As "torch" of `getattr(torch, name)`; empty for anything else."""
    if not isinstance(called, libcst.Call) or code_of(called.func) != "getattr":
        return ""
    if len(called.args) != 2 or code_of(called.args[1].value) != name:
        return ""
    space = called.args[0].value
    return code_of(space) if scope_of(source).imported_name(space) in _NAMESPACES else ""


def _of_file(source: Source, function: libcst.FunctionDef) -> dict[str, libcst.FunctionDef]:
    """The functions of the module that compute one expression of their parameters, and that the
    file uses for more than calls."""
    found: dict[str, libcst.FunctionDef] = {}
    for each in source.module.body:
        if not isinstance(each, libcst.FunctionDef) or each.name.value == function.name.value:
            continue
        name = each.name.value
        if each.decorators or _expression(each) is None or not is_function_of_module(source, name):
            continue
        uses = [use for use in uses_of(source, source.module, name) if use is not each.name]
        parents = [(use, source.parent(use)) for use in uses]
        if any(not isinstance(call, libcst.Call) or call.func is not use for use, call in parents):
            found[name] = each
    return found


def _expression(function: libcst.FunctionDef) -> libcst.BaseExpression | None:
    """What it returns, where it does nothing else."""
    body = [*function.body.body]
    if isinstance(function.body, libcst.IndentedBlock) and len(body) == 2:
        first = body.pop(0)
        small = first.body[0] if isinstance(first, libcst.SimpleStatementLine) else None
        if not isinstance(small, libcst.Expr) or not isinstance(small.value, libcst.SimpleString):
            return None
    if len(body) != 1 or not isinstance(body[0], libcst.SimpleStatementLine):
        return None
    returned = body[0].body[0]
    return returned.value if isinstance(returned, libcst.Return) else None


def _inlined(function: libcst.FunctionDef, given: Sequence[libcst.Arg]) -> str:
    """What a function computes of these arguments."""
    names = [each.name.value for each in function.params.params]
    simple = all(isinstance(each.value, libcst.Name) and not each.star for each in given)
    if parameters_of(function) != {*names} or len(names) != len(given) or not simple:
        raise EditImpossible(f"`{function.name.value}` takes different arguments")
    value = _expression(function)
    assert value is not None, "one expression"
    tree = ast.parse(code_of(value).strip(), mode="eval")
    passed = {name: code_of(each.value) for name, each in zip(names, given, strict=True)}
    if any(isinstance(each, (ast.Lambda, ast.comprehension)) for each in ast.walk(tree)):
        raise EditImpossible(f"`{function.name.value}` has local variables")
    text = ast.unparse(_Renamed(passed).visit(tree))
    return f"({text})" if isinstance(tree.body, ast.IfExp) else text


class _Renamed(ast.NodeTransformer):
    """Variables by other names."""

    def __init__(self, names: Mapping[str, str]) -> None:
        self._names = names

    def visit_Name(self, node: ast.Name) -> ast.Name:
        return ast.Name(self._names.get(node.id, node.id), node.ctx)
