"""Hooks of modules: left to Python where they are registered, or registered once, before the first
call."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import libcst
from libcst import matchers

from compilediag.fixes.codemods.edit import Edit, EditImpossible, NothingToEdit
from compilediag.fixes.codemods.names import bound_in, fresh_name, names_in, parameters_of, uses_of
from compilediag.fixes.codemods.purity import Scope, code_of, is_number, scope_of
from compilediag.fixes.codemods.tree import EditOfTree, Insertion, Replacement, Source

_REGISTER = matchers.Call(
    func=matchers.Attribute(
        attr=matchers.Name(
            value=matchers.MatchIfTrue(
                lambda name: name.startswith("register_") and name.endswith("_hook")
            )
        )
    )
)
_DISABLE = "torch.compiler.disable"
_LEAVES = (libcst.Break, libcst.Continue, libcst.Return, libcst.Yield)

_Loop = libcst.For | libcst.While


# Left to Python


def disabled_hook(source: Source, edit: Edit) -> Iterator[EditOfTree]:
    """Edit "disabled_hook": the function around the line is registered as `torch.compiler.disable`
    returns it."""
    for node in _registered(source, edit):
        yield Replacement(node, _disabled)


def shown_registrations(source: Source, edit: Edit) -> tuple[int, str]:
    """The line of the first registration that "disabled_hook" edits, and how it reads then."""
    node = _registered(source, edit)[0]
    call = next(each for each in source.around(node, libcst.Call) if _is_registration(each))
    new = call.deep_replace(node, _disabled(node))
    return source.lines_of(call).start, " ".join(code_of(new).split())


def _disabled(node: libcst.BaseExpression) -> libcst.BaseExpression:
    return libcst.Call(libcst.parse_expression(_DISABLE), [libcst.Arg(node)])


def _is_registration(node: libcst.CSTNode) -> bool:
    return matchers.matches(node, _REGISTER)


def _registered(source: Source, edit: Edit) -> list[libcst.Name | libcst.Attribute]:
    """What names the function in each call that registers it."""
    functions = source.functions_at(edit.line)
    if not functions:
        raise EditImpossible(f"line {edit.line} is not inside a function")
    hook = functions[0]
    is_method = isinstance(source.parent(source.parent(hook)), libcst.ClassDef)
    found = [
        node
        for call in source.below(source.module, libcst.Call)
        if _is_registration(call)
        for argument in call.args
        for node in _names_of(source, argument.value, hook, is_method=is_method)
    ]
    if not found:
        raise NothingToEdit(f"no call of the file registers {hook.name.value} by its name")
    return found


def _names_of(
    source: Source, argument: libcst.CSTNode, hook: libcst.FunctionDef, *, is_method: bool
) -> Iterator[libcst.Name | libcst.Attribute]:
    """Names of a function, or of a method whose name no other has."""
    name = hook.name.value
    if is_method:
        same = [
            each
            for each in source.below(source.module, libcst.FunctionDef)
            if each.name.value == name
        ]
        for node in source.below(argument, libcst.Attribute):
            if node.attr.value == name and len(same) == 1:
                yield node
        return
    for node in source.below(argument, libcst.Name):
        parent = source.parent(node)
        member = isinstance(parent, libcst.Attribute) and parent.attr is node
        bound = [getattr(each, "node", None) for each in source.scope(node)[node.value]]
        if node.value == name and not member and bound == [hook]:
            yield node


# Registered once


def registered_once(source: Source, edit: Edit) -> Iterator[EditOfTree]:
    """Edit "registered_once": a hook that is registered in the loop around the line is registered
    before it. One that is removed in the same pass is removed behind the loop; one that stays
    writes only once it would have been registered."""
    scope = scope_of(source)
    loops = [
        each
        for kind in (libcst.For, libcst.While)
        for each in source.below(source.module, kind)
        if edit.line in source.lines_of(each)
    ]
    calls = [
        call for loop in loops for call in source.below(loop, libcst.Call) if _is_registration(call)
    ]
    if len(calls) != 1 or len(loops) != 1:
        raise EditImpossible(f"not one hook is registered in one loop around line {edit.line}")
    (call,), (loop,) = calls, loops
    if loop.orelse is not None:
        raise EditImpossible("the loop has an `else`")
    module = libcst.ensure_type(call.func, libcst.Attribute).value
    if len(call.args) != 1 or not isinstance(call.args[0].value, libcst.Name):
        raise EditImpossible(f"`{code_of(call)}` registers more than a function")
    changed = (names_in(module) | names_in(call.args[0].value)) & set(bound_in(source, loop))
    if changed:
        raise EditImpossible(f"`{min(changed)}` is a different one in each pass")
    statement = next(source.around(call, libcst.SimpleStatementLine), None)
    if statement is None or len(statement.body) != 1:
        raise EditImpossible(f"`{code_of(call)}` is not in a statement of its own")
    if source.parent(source.parent(statement)) is loop:
        yield from _removed_behind(scope, loop, statement, call)
    else:
        yield from _gated(scope, loop, statement, call)


def _removed_behind(
    scope: Scope, loop: _Loop, statement: libcst.SimpleStatementLine, call: libcst.Call
) -> Iterator[EditOfTree]:
    """`handle = module.register_forward_hook(hook)` and `handle.remove()` in one pass of a loop."""
    source, small = scope.source, statement.body[0]
    target = small.targets[0].target if isinstance(small, libcst.Assign) else None
    if not isinstance(target, libcst.Name) or small.value is not call:  # pyright: ignore[reportAttributeAccessIssue, reportUnknownMemberType]
        raise EditImpossible("the hook is registered again and again, and never removed")
    handle, body = target.value, list(loop.body.body)
    removing = [
        each
        for each in body
        if isinstance(each, libcst.SimpleStatementLine)
        and code_of(each.with_changes(leading_lines=())).strip() == f"{handle}.remove()"
    ]
    whole = next(source.around(loop, libcst.FunctionDef), source.module)
    if len(removing) != 1 or len(uses_of(source, whole, handle)) != 2:
        raise EditImpossible(f"`{handle}` is not removed once in each pass, or used for more")
    if any(True for kind in _LEAVES for _ in source.below(loop, kind)):
        raise EditImpossible("a pass of the loop may end before the hook is removed")
    start, end = body.index(statement), body.index(removing[0])
    roots = {_root(libcst.ensure_type(call.func, libcst.Attribute).value)}
    for each in (*body[:start], *body[end + 1 :]):
        for other in source.below(each, libcst.Call):
            _require_calls_no_module(scope, other, roots)
    line = code_of(statement.with_changes(leading_lines=())).strip()
    yield Replacement(statement, _remove)
    yield Replacement(removing[0], _remove)
    yield Replacement(loop, _Around(line, f"{handle}.remove()"))


def _require_calls_no_module(scope: Scope, call: libcst.Call, roots: set[str]) -> None:
    """A module that is called without the hook must stay without it."""
    root = _root(call.func)
    imported = scope.imported_name(call.func) is not None
    builtin = isinstance(call.func, libcst.Name) and root in (
        "print",
        "len",
        "range",
        "float",
        "int",
        "str",
        "zip",
        "enumerate",
        "sum",
        "next",
    )
    method = isinstance(call.func, libcst.Attribute) and call.func.attr.value in (
        "item",
        "backward",
        "step",
        "zero_grad",
        "append",
        "detach",
        "sum",
        "mean",
        "tolist",
        "norm",
    )
    if root in roots or not (imported or builtin or method):
        raise EditImpossible(f"`{code_of(call)}` may call the module without the hook")


def _root(node: libcst.CSTNode) -> str:
    while isinstance(node, (libcst.Attribute, libcst.Subscript, libcst.Call)):
        node = node.func if isinstance(node, libcst.Call) else node.value
    return node.value if isinstance(node, libcst.Name) else ""


def _gated(
    scope: Scope, loop: _Loop, statement: libcst.SimpleStatementLine, call: libcst.Call
) -> Iterator[EditOfTree]:
    """`if step == 2: module.register_forward_hook(hook)`: the hook is there from the start, and
    what it copies is what was there until then."""
    source = scope.source
    _require_once(scope, loop, statement)
    if not matchers.matches(statement.body[0], matchers.Expr(value=matchers.Call())):
        raise EditImpossible("the hook may be removed again")
    if any(True for _ in source.around(loop, libcst.FunctionDef)):
        raise EditImpossible("the function with the loop may be called more than once")
    hook = _copying_hook(scope, loop, call)
    copies = [_copied(scope, hook, each) for each in hook.body.body]
    flag = fresh_name(source.module, f"{hook.name.value}_on")
    device = code_of(copies[0][0])
    for target, value in copies:
        yield Replacement(value, _Where(flag, code_of(target)))
    made = f"{flag} = torch.zeros((), dtype=torch.bool, device={device}.device)"
    yield Insertion(loop, (made, code_of(statement.with_changes(leading_lines=())).strip()))
    yield Replacement(call, _Code(f"{flag}.fill_(True)"))


def _require_once(scope: Scope, loop: _Loop, statement: libcst.SimpleStatementLine) -> None:
    """Raises EditImpossible unless the `if` around a statement is true in one pass at most."""
    block = scope.source.parent(scope.source.parent(statement))
    counter = loop.target if isinstance(loop, libcst.For) else None
    if isinstance(counter, libcst.Tuple):
        counter = counter.elements[0].value
    counted = isinstance(loop, libcst.For) and matchers.matches(
        loop.iter, matchers.Call(func=matchers.Name("range") | matchers.Name("enumerate"))
    )
    equal = matchers.Comparison(comparisons=[matchers.ComparisonTarget(operator=matchers.Equal())])
    once = (
        isinstance(block, libcst.If)
        and scope.source.parent(scope.source.parent(block)) is loop
        and len(block.body.body) == 1
        and matchers.matches(block.test, equal)
    )
    if not once or not counted or not isinstance(counter, libcst.Name):
        raise EditImpossible("the hook may be registered more than once")
    assert isinstance(block, libcst.If), "as it was seen to be"
    test = libcst.ensure_type(block.test, libcst.Comparison)
    again = list(bound_in(scope.source, loop)).count(counter.value) > 1
    if (
        code_of(test.left) != counter.value
        or not is_number(test.comparisons[0].comparator)
        or again
    ):
        raise EditImpossible(f"`{code_of(test)}` may be true more than once")


def _copying_hook(scope: Scope, loop: _Loop, call: libcst.Call) -> libcst.FunctionDef:
    """The function that is registered: of the same block as the loop, and used nowhere else."""
    source, name = scope.source, code_of(call.args[0].value)
    found = [
        each for each in source.below(source.module, libcst.FunctionDef) if each.name.value == name
    ]
    uses = uses_of(source, source.module, name)
    if len(found) != 1 or len(uses) != 2 or source.parent(found[0]) is not source.parent(loop):
        raise EditImpossible(f"`{name}` is not one function of the file, used only as the hook")
    if found[0].decorators or isinstance(found[0].body, libcst.SimpleStatementSuite):
        raise EditImpossible(f"`{name}` is decorated, or written in one line")
    return found[0]


def _copied(
    scope: Scope, hook: libcst.FunctionDef, statement: libcst.CSTNode
) -> tuple[libcst.Name, libcst.BaseExpression]:
    """What a statement copies, and into which tensor: `peak.copy_(output.detach().max())`."""
    copying = matchers.SimpleStatementLine(
        body=[
            matchers.Expr(
                matchers.Call(
                    func=matchers.Attribute(value=matchers.Name(), attr=matchers.Name("copy_")),
                    args=[matchers.Arg(keyword=None, star="")],
                )
            )
        ]
    )
    if not matchers.matches(statement, copying):
        first = code_of(statement).strip().splitlines()[0]
        raise EditImpossible(f"`{first}` of the hook does more than copy into a tensor")
    call = next(iter(scope.source.below(statement, libcst.Call)))
    target = libcst.ensure_type(call.func, libcst.Attribute).value
    value = call.args[0].value
    scope.require_pure(value)
    parameters = parameters_of(hook)
    for name in scope.source.below(value, libcst.Name):
        parent = scope.source.parent(name)
        detached = isinstance(parent, libcst.Attribute) and parent.attr.value == "detach"
        if name.value in parameters and not detached:
            raise EditImpossible(f"`{code_of(value)}` may record a gradient")
    target = libcst.ensure_type(target, libcst.Name)
    if target.value in parameters:
        raise EditImpossible(f"the hook writes into its argument `{target.value}`")
    return target, value


def _remove(_: libcst.CSTNode) -> libcst.RemovalSentinel:
    return libcst.RemoveFromParent()


@dataclass(frozen=True)
class _Code:
    code: str

    def __call__(self, _: libcst.CSTNode) -> libcst.BaseExpression:
        return libcst.parse_expression(self.code)


@dataclass(frozen=True)
class _Where:
    """What is there, unless the flag is set."""

    flag: str
    old: str

    def __call__(self, value: libcst.BaseExpression) -> libcst.BaseExpression:
        return libcst.parse_expression(f"torch.where({self.flag}, {code_of(value)}, {self.old})")


@dataclass(frozen=True)
class _Around:
    """A statement before a loop, and one behind it."""

    before: str
    behind: str

    def __call__(self, loop: _Loop) -> libcst.FlattenSentinel[libcst.BaseStatement]:
        first = libcst.parse_statement(self.before)
        assert isinstance(first, libcst.SimpleStatementLine), "one line"
        return libcst.FlattenSentinel(
            [
                first.with_changes(leading_lines=loop.leading_lines),
                loop.with_changes(leading_lines=()),
                libcst.parse_statement(self.behind),
            ]
        )
