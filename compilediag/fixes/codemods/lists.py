"""Lists of tensors of different lengths: padded to the longest before the call, and what the loop
over them does for the padding is not kept."""

from __future__ import annotations

from collections.abc import Iterator

import libcst
from libcst import matchers

from compilediag.fixes.codemods.branches import require_arithmetic
from compilediag.fixes.codemods.choices import function_at
from compilediag.fixes.codemods.contexts import Called, is_compile, only_compile
from compilediag.fixes.codemods.edit import Edit, EditImpossible
from compilediag.fixes.codemods.names import (
    bound_in,
    fresh_name,
    is_bound_before,
    names_in,
    parameters_of,
    require_not_shared,
    uses_of,
    written_in,
)
from compilediag.fixes.codemods.placed import Once
from compilediag.fixes.codemods.purity import FINITE_AT_ONE, Scope, code_of, scope_of
from compilediag.fixes.codemods.sides import side_of
from compilediag.fixes.codemods.tree import EditOfTree, Insertion, Replacement, Source, with_edits


def padded_list(source: Source, edit: Edit) -> Iterator[EditOfTree]:
    """Edit "padded_list": `code` has an argument that is a list of tensors, and its largest length.
    A decorator outside `torch.compile` passes the list with zeros behind it, a tensor that is
    true for what is no padding, and the length as a tensor."""
    name, longest = edit.code
    scope, function = scope_of(source), function_at(source, edit.line)
    _require_simple(source, function, name)
    present = fresh_name(function, f"{name}_present")
    number = fresh_name(function, f"{name}_number")
    uses = uses_of(source, function.body, name)
    inside = [_of_use(scope, function, use, present, number) for use in uses]
    if not any(isinstance(each.node, libcst.For) for each in inside):
        raise EditImpossible(f"no loop goes over `{name}`")
    wrapper = fresh_name(source.module, f"{function.name.value}_of_padded")
    first = is_compile(scope, function)
    if not first:
        yield Replacement(only_compile(scope, function), Called(wrapper))
    yield Insertion(function, (_decorator(function, wrapper, name, present, number, longest),))
    changed = _changed(source, function, inside, (present, number), wrapper if first else "")
    yield Replacement(function, Once(function, changed, code_of(changed)))


def _require_simple(source: Source, function: libcst.FunctionDef, name: str) -> None:
    parameters = [each.name.value for each in function.params.params]
    if parameters_of(function) != {*parameters} or any(
        each.default is not None for each in function.params.params
    ):
        raise EditImpossible(f"`{function.name.value}` takes more than arguments by place")
    if name not in parameters or source.parent(function) is not source.module:
        raise EditImpossible(f"`{name}` is not an argument of a function of the module")
    if name in {*bound_in(source, function.body), *written_in(source, function)}:
        raise EditImpossible(f"`{name}` is changed in the function")
    if function.asynchronous or matchers.findall(function, matchers.Yield()):
        raise EditImpossible(f"`{function.name.value}` is not a plain function")


def _of_use(
    scope: Scope, function: libcst.FunctionDef, use: libcst.Name, present: str, number: str
) -> Replacement:
    """A loop, the length as a number, or the first element."""
    source, parent = scope.source, scope.source.parent(use)
    if isinstance(parent, libcst.For) and parent.iter is use:
        return _loop(scope, function, parent, present)
    call = source.parent(parent)
    if isinstance(call, libcst.Call) and code_of(call) == f"len({use.value})":
        require_arithmetic(scope, function, call)
        return Replacement(call, Once(call, libcst.Name(number)))
    if isinstance(parent, libcst.Subscript) and code_of(parent) == f"{use.value}[0]":
        return Replacement(parent, Once(parent, parent))
    raise EditImpossible(f"`{code_of(parent)}` needs the list as it is")


def _loop(
    scope: Scope, function: libcst.FunctionDef, loop: libcst.For, present: str
) -> Replacement:
    """Each assignment keeps its old value for the padding."""
    if not isinstance(loop.target, libcst.Name) or loop.orelse is not None or loop.asynchronous:
        raise EditImpossible("the loop does more than go over the list")
    side = side_of(loop.body)
    if side.returned is not None or not side.assigned:
        raise EditImpossible("the loop returns")
    own = loop.target.value
    names = [name for name, _ in side.assigned]
    uses = uses_of(scope.source, function.body, own)
    if (
        not all(_is_in(scope, each, loop) for each in uses)
        or own in names
        or own in parameters_of(function)
    ):
        raise EditImpossible(f"`{own}` is used behind the loop")
    condition = fresh_name(function, f"{own}_present")
    lines: list[str] = []
    for name, value in side.assigned:
        scope.require_pure(value)
        _require_finite(scope, value)
        require_not_shared(function, name)
        if name in {*written_in(scope.source, function)}:
            raise EditImpossible(f"`{name}` is written into: it may be another variable's too")
        if not is_bound_before(scope.source, function, loop, name):
            raise EditImpossible(f"`{name}` may have no value before the loop")
        lines.append(f"{name} = torch.where({condition}, {code_of(value)}, {name})")
    block = libcst.IndentedBlock([libcst.parse_statement(line) for line in lines])
    both = libcst.Tuple(
        [libcst.Element(loop.target), libcst.Element(libcst.Name(condition))], lpar=(), rpar=()
    )
    pairs = libcst.parse_expression(f"zip({code_of(loop.iter)}, {present})")
    return Replacement(loop, Once(loop, loop.with_changes(target=both, iter=pairs, body=block)))


def _is_in(scope: Scope, node: libcst.CSTNode, loop: libcst.For) -> bool:
    return any(each is loop for each in scope.source.around(node, libcst.For))


def _require_finite(scope: Scope, value: libcst.BaseExpression) -> None:
    """What is computed of zeros must have a finite gradient: 0 times another one is nan."""
    calls = {scope.torch_function(call) for call in scope.source.below(value, libcst.Call)}
    operations = scope.source.below(value, libcst.BinaryOperation)
    if calls & FINITE_AT_ONE or any(
        isinstance(each.operator, (libcst.Divide, libcst.Power)) and names_in(each.right)
        for each in operations
    ):
        raise EditImpossible(f"`{code_of(value)}` may not be finite for padding")


def _decorator(
    function: libcst.FunctionDef, wrapper: str, name: str, present: str, number: str, longest: str
) -> str:
    taken = [each.name.value for each in function.params.params]
    called, missing = fresh_name(function, "compiled"), fresh_name(function, "missing")
    zeros = f"torch.zeros_like({name}[0]) for _ in range({missing})"
    padding = fresh_name(function, "padding")
    passed = [f"[*{name}, *{padding}]" if each == name else each for each in taken]
    passed.append(f"{present}=torch.arange(len({padding}) + len({name})) < len({name})")
    passed.append(f"{number}=torch.tensor(len({name}))")
    rows = "".join(f"            {each},\n" for each in passed)
    return (
        f"def {wrapper}({called}):\n"
        f"    @functools.wraps({called})\n"
        f"    def call({', '.join(taken)}):\n"
        f"        {missing} = {longest} - len({name})\n"
        f"        {padding} = [{zeros}]\n"
        f"        return {called}(\n{rows}        )\n"
        f"    return call\n"
    )


def _changed(
    source: Source,
    function: libcst.FunctionDef,
    inside: list[Replacement],
    names: tuple[str, str],
    decorator: str,
) -> libcst.FunctionDef:
    index = [*source.below(source.module, libcst.FunctionDef)].index(function)
    whole = with_edits(source, inside)
    made = matchers.findall(whole, matchers.FunctionDef())[index]
    assert isinstance(made, libcst.FunctionDef)
    by_name = [libcst.Param(libcst.Name(name)) for name in names]
    parameters = made.params.with_changes(
        star_arg=libcst.ParamStar(), kwonly_params=[*made.params.kwonly_params, *by_name]
    )
    made = made.with_changes(params=parameters)
    if not decorator:
        return made
    apart = [libcst.EmptyLine(indent=False)] * 2
    own = libcst.Decorator(libcst.Name(decorator), leading_lines=apart)
    return made.with_changes(decorators=[own, *made.decorators])
