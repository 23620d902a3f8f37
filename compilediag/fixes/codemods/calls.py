"""Calls of compiled functions, and functions that are kept from being compiled."""

from __future__ import annotations

from collections.abc import Iterator

import libcst
from libcst import matchers

from compilediag.fixes.codemods.edit import Edit, EditImpossible, NothingToEdit
from compilediag.fixes.codemods.purity import Scope, code_of, scope_of
from compilediag.fixes.codemods.tree import EditOfTree, Replacement, Source

_DISABLE = frozenset(
    ("torch.compiler.disable", "torch._dynamo.disable", "torch._dynamo.decorators.disable")
)
_LAZY = frozenset(("map", "filter", "zip", "reversed", "iter", "enumerate"))


def without_disable(source: Source, edit: Edit) -> Iterator[EditOfTree]:
    """Edit "without_disable": a function named `code[0]` loses `torch.compiler.disable`."""
    scope, name = scope_of(source), edit.code[0].rpartition(".")[2]
    found = [
        (function, decorator)
        for function in source.below(source.module, libcst.FunctionDef)
        for decorator in function.decorators
        if function.name.value == name and _is_disable(scope, decorator.decorator)
    ]
    if len(found) != 1:
        raise EditImpossible(
            f"`{name}` does not have exactly one definition that is disabled in the file"
        )
    ((_, decorator),) = found
    if _comments_of(decorator):
        raise EditImpossible(
            f"there is a comment at the decorator of `{name}`: it may be there for a reason"
        )
    yield Replacement(decorator, _removed)


def _removed(_: libcst.CSTNode) -> libcst.RemovalSentinel:
    return libcst.RemoveFromParent()


def _is_disable(scope: Scope, decorator: libcst.BaseExpression) -> bool:
    if isinstance(decorator, libcst.Call):
        if any(each.keyword is None or each.keyword.value == "reason" for each in decorator.args):
            return False
        decorator = decorator.func
    return scope.imported_name(decorator) in _DISABLE


def _comments_of(decorator: libcst.Decorator) -> bool:
    lines = any(line.comment is not None for line in decorator.leading_lines)
    return lines or decorator.trailing_whitespace.comment is not None


def as_list(source: Source, edit: Edit) -> Iterator[EditOfTree]:
    """Edit "as_list": a generator that is passed in a call becomes a list. `code` is the text of
    the call."""
    call = call_at(source, edit)
    arguments = [each for each in call.args if _is_generator(source, each.value)]
    names = [each.value for each in call.args if isinstance(each.value, libcst.Name)]
    if len(arguments) == 1:
        (argument,) = arguments
        yield Replacement(argument.value, _list_of)
        return
    bound = [each for name in names for each in _binding(source, name)]
    if arguments or len(bound) != 1:
        raise NothingToEdit(f"line {edit.line} does not pass exactly one generator made there")
    yield Replacement(bound[0], _list_of)


def _list_of(value: libcst.BaseExpression) -> libcst.BaseExpression:
    if isinstance(value, libcst.GeneratorExp):
        return libcst.ListComp(elt=value.elt, for_in=value.for_in)
    return libcst.Call(libcst.Name("list"), [libcst.Arg(value)])


def _is_generator(source: Source, value: libcst.BaseExpression) -> bool:
    if isinstance(value, libcst.GeneratorExp):
        return True
    if not isinstance(value, libcst.Call) or not isinstance(value.func, libcst.Name):
        return False
    name = value.func.value
    own = [
        each
        for each in source.below(source.module, libcst.FunctionDef)
        if each.name.value == name and source.parent(each) is source.module
    ]
    return (not own and name in _LAZY) or any(
        any(True for _ in source.below(each, libcst.Yield)) for each in own
    )


def _binding(source: Source, name: libcst.Name) -> Iterator[libcst.BaseExpression]:
    """What a variable holds that is used nowhere but in a call: a generator made in the statement
    before the call's."""
    whole = next(source.around(name, libcst.FunctionDef), source.module)
    uses = [each for each in source.below(whole, libcst.Name) if each.value == name.value]
    statement = next(source.around(name, libcst.SimpleStatementLine), None)
    if len(uses) != 2 or statement is None:
        return
    block = source.parent(statement)
    body = block.body if isinstance(block, (libcst.IndentedBlock, libcst.Module)) else ()
    before = list(body)[: list(body).index(statement)][-1:] if body else []
    for each in before:
        if matchers.matches(
            each,
            matchers.SimpleStatementLine(
                body=[matchers.Assign(targets=[matchers.AssignTarget(matchers.Name(name.value))])]
            ),
        ):
            assert isinstance(each, libcst.SimpleStatementLine)
            small = each.body[0]
            assert isinstance(small, libcst.Assign)
            if _is_generator(source, small.value):
                yield small.value


def as_dense(source: Source, edit: Edit) -> Iterator[EditOfTree]:
    """Edit "as_dense": a variable that is passed in a call, `code[1]`, is made dense there.
    `code[0]` is the text of the call."""
    call = call_at(source, edit)
    found = [each for each in call.args if code_of(each.value) == edit.code[1]]
    if len(found) != 1 or not isinstance(found[0].value, (libcst.Name, libcst.Attribute)):
        raise EditImpossible(f"the call does not pass `{edit.code[1]}` exactly once")
    yield Replacement(found[0].value, _dense)


def _dense(value: libcst.BaseExpression) -> libcst.BaseExpression:
    return libcst.Call(libcst.Attribute(value, libcst.Name("to_dense")))


def call_at(source: Source, edit: Edit) -> libcst.Call:
    """The call of a line whose text is `code[0]`, but for its blanks.

    Raises:
        EditImpossible: there is none, or more than one.
    """
    wanted = "".join(edit.code[0].split())
    found = [
        call
        for call in source.below(source.module, libcst.Call)
        if edit.line in source.lines_of(call) and "".join(code_of(call).split()) == wanted
    ]
    if len(found) != 1:
        raise EditImpossible(f"line {edit.line} does not have exactly one call `{edit.code[0]}`")
    return found[0]
