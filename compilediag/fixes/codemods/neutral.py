"""An argument that is `None` at times: the value that changes nothing instead."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import libcst
from libcst import matchers

from compilediag.fixes.codemods.calls import call_at
from compilediag.fixes.codemods.edit import Edit, EditImpossible
from compilediag.fixes.codemods.names import bound_in, names_in, parameters_of, uses_of
from compilediag.fixes.codemods.purity import code_of, scope_of
from compilediag.fixes.codemods.tree import EditOfTree, Replacement, Source

_NEUTRAL: Mapping[type[libcst.CSTNode], str] = {
    libcst.Add: "zeros_like",
    libcst.Subtract: "zeros_like",
    libcst.Multiply: "ones_like",
    libcst.Divide: "ones_like",
    libcst.AddAssign: "zeros_like",
    libcst.SubtractAssign: "zeros_like",
    libcst.MultiplyAssign: "ones_like",
    libcst.DivideAssign: "ones_like",
}
"""By the operation whose right side the argument is."""


def neutral_argument(source: Source, edit: Edit) -> Iterator[EditOfTree]:
    """Edit "neutral_argument": `tensor if condition else None`, which a call passes, has ones or
    zeros for None. `code` is the text of the call, the argument as it is written there, the
    parameter, a line of the function that is called, and the dtype of the tensor ("torch.bool")."""
    call = call_at(source, edit)
    _, passed, parameter, line, dtype = edit.code
    function = next(iter(source.functions_at(int(line))), None)
    if function is None or parameter not in parameters_of(function):
        raise EditImpossible(f"line {line} is not inside a function with a parameter {parameter}")
    neutral = _neutral_of(source, parameter, dtype)
    given = [each.value for each in call.args if code_of(each.value) == passed]
    if len(given) != 1:
        raise EditImpossible(f"the call does not pass `{passed}` exactly once")
    chosen = _choice(source, given[0])
    tensor, nothing = chosen.body, chosen.orelse
    if _is_none(tensor):
        tensor, nothing = nothing, tensor
    if not _is_none(nothing) or _is_none(tensor):
        raise EditImpossible(f"`{code_of(chosen)}` does not choose between a tensor and None")
    scope_of(source).require_pure(tensor)
    if not isinstance(tensor, (libcst.Call, libcst.Name)):
        raise EditImpossible(f"`{code_of(tensor)}` may not be a tensor where None is chosen")
    if shared := (names_in(tensor) & names_in(chosen.test)) - {"torch"}:
        raise EditImpossible(
            f"`{min(shared)}` decides, and may not be a tensor where None is chosen"
        )
    yield Replacement(nothing, _Made(f"torch.{neutral}({code_of(tensor)})"))


_ATTENTION = "torch.nn.functional.scaled_dot_product_attention"


def _is_none(node: libcst.CSTNode) -> bool:
    return matchers.matches(node, matchers.Name("None"))


def _choice(source: Source, given: libcst.BaseExpression) -> libcst.IfExp:
    """What a call passes: a choice that stands there, or in the one statement that makes it."""
    if isinstance(given, libcst.IfExp):
        return given
    if not isinstance(given, libcst.Name):
        raise EditImpossible(f"`{code_of(given)}` is not a variable")
    whole = next(source.around(given, libcst.FunctionDef), source.module)
    uses = uses_of(source, whole, given.value)
    made = [
        each.value
        for each in source.below(whole, libcst.Assign)
        if any(code_of(target.target) == given.value for target in each.targets)
    ]
    once = list(bound_in(source, whole)).count(given.value) == 1 and len(uses) == 2
    if not once or len(made) != 1 or not isinstance(made[0], libcst.IfExp):
        raise EditImpossible(f"`{given.value}` is not made by one choice, or used for more")
    return made[0]


def _neutral_of(source: Source, name: str, dtype: str) -> str:
    """What makes the value that changes nothing where functions of the file use a parameter of the
    name: if it is not None, in one operation, as a mask of attention, or passed on to one that
    does."""
    functions = source.below(source.module, libcst.FunctionDef)
    found = {
        made
        for function in functions
        if name in parameters_of(function)
        for made in _in_function(source, function, name, dtype)
    }
    if len(found) != 1:
        raise EditImpossible(f"`{name}` is more than one operand where it is not None")
    return found.pop()


def _in_function(
    source: Source, function: libcst.FunctionDef, name: str, dtype: str
) -> Iterator[str]:
    uses = [
        each
        for each in source.below(function.body, libcst.Name)
        if each.value == name and not _is_member(source, each)
    ]
    for kind in (libcst.If, libcst.IfExp):
        for branch in source.below(function.body, kind):
            made = operation_of(branch, name)
            if made is not None:
                inside = list(source.below(branch, libcst.Name))
                uses = [each for each in uses if each not in inside]
                yield made
    for each in uses:
        if (made := _as_argument(source, each, name, dtype)) is not None:
            yield made


def _as_argument(source: Source, use: libcst.Name, name: str, dtype: str) -> str | None:
    """Of a mask that attention of torch gets, by what it means there; None where a function with a
    parameter of the name gets it.

    Raises:
        EditImpossible: it is used for something else.
    """
    argument = source.parent(use)
    call = source.parent(argument)
    if isinstance(argument, libcst.Arg) and isinstance(call, libcst.Call) and call.func is not use:
        keyword = argument.keyword.value if argument.keyword is not None else None
        full = scope_of(source).imported_name(call.func)
        if full == _ATTENTION and (keyword == "attn_mask" or call.args.index(argument) == 3):
            return "ones_like" if dtype == "torch.bool" else "zeros_like"
        if full is None and keyword in (None, name) and not argument.star:
            return None
    raise EditImpossible(f"`{name}` is more than one operand where it is not None")


def _is_member(source: Source, node: libcst.Name) -> bool:
    parent = source.parent(node)
    member = isinstance(parent, libcst.Attribute) and parent.attr is node
    return member or (isinstance(parent, libcst.Arg) and parent.keyword is node)


def operation_of(branch: libcst.If | libcst.IfExp, name: str) -> str | None:
    """Of `if mask is not None: x = x * mask`, `x *= mask` there, or `x * mask if mask is not None
    else x`."""
    test = code_of(branch.test.with_changes(lpar=(), rpar=()))
    if isinstance(branch, libcst.IfExp):
        then, other = branch.body, branch.orelse
        if test == f"{name} is None":
            then, other = other, then
        elif test != f"{name} is not None":
            return None
        return _of_operation(then, code_of(other), name)
    body = branch.body.body
    line = body[0] if len(body) == 1 else None
    if test != f"{name} is not None" or branch.orelse is not None:
        return None
    small = line.body[0] if isinstance(line, libcst.SimpleStatementLine) else line
    if isinstance(small, libcst.AugAssign) and code_of(small.value) == name:
        return _NEUTRAL.get(type(small.operator))
    if isinstance(small, libcst.Assign) and len(small.targets) == 1:
        return _of_operation(small.value, code_of(small.targets[0].target), name)
    return None


def _of_operation(value: libcst.BaseExpression, other: str, name: str) -> str | None:
    if isinstance(value, libcst.Call):
        return _of_filling(value, other, name)
    if not isinstance(value, libcst.BinaryOperation) or code_of(value.right) != name:
        return None
    bare = value.with_changes(lpar=(), rpar=())
    return _NEUTRAL.get(type(value.operator)) if code_of(bare.left) == other else None


def _of_filling(call: libcst.Call, other: str, name: str) -> str | None:
    """Of `x.masked_fill(mask, value)`, or `torch.where(mask, x, value)`: what fills nothing."""
    filled = matchers.Call(
        func=matchers.Attribute(attr=matchers.Name("masked_fill") | matchers.Name("masked_fill_")),
        args=[matchers.Arg(keyword=None, star=""), matchers.Arg()],
    )
    if matchers.matches(call, filled):
        function = libcst.ensure_type(call.func, libcst.Attribute)
        where = code_of(call.args[0].value.with_changes(lpar=(), rpar=()))
        if code_of(function.value) != other:
            return None
        if where in (name, f"{name}.bool()", f"{name} == 1", f"{name} != 0"):
            return "zeros_like"
        return "ones_like" if where in _negated(name) else None
    chosen = [code_of(each.value) for each in call.args]
    if code_of(call.func) != "torch.where" or len(chosen) != 3:
        return None
    if chosen[:2] == [name, other]:
        return "ones_like"
    return "zeros_like" if (chosen[0], chosen[2]) == (name, other) else None


def _negated(name: str) -> tuple[str, ...]:
    return (
        f"~{name}",
        f"{name} == 0",
        f"{name} != 1",
        f"~{name}.bool()",
        f"{name}.logical_not()",
        f"torch.logical_not({name})",
    )


@dataclass(frozen=True)
class _Made:
    code: str

    def __call__(self, _: libcst.CSTNode) -> libcst.BaseExpression:
        return libcst.parse_expression(self.code)
