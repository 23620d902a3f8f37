"""A `with` that is all that a compiled function does, and that torch cannot trace: entered around
the call instead of in it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import libcst
from libcst import matchers

from compilediag.fixes.codemods.compiled_instance import compiled_instance, owner_of_forward
from compilediag.fixes.codemods.edit import Edit, EditImpossible
from compilediag.fixes.codemods.names import bound_in, fresh_name, names_in, parameters_of, uses_of
from compilediag.fixes.codemods.purity import Scope, code_of, scope_of
from compilediag.fixes.codemods.tree import EditOfTree, Insertion, Replacement, Source

_COMPILE = "torch.compile"
_NAMES = matchers.Tuple(elements=[matchers.AtLeastN(matchers.Element(matchers.Name()), n=1)])
_RETURN_OF_NAMES = matchers.SimpleStatementLine(
    body=[matchers.Return(value=matchers.Name() | _NAMES)]
)
"""It computes nothing."""


def around_call(source: Source, edit: Edit) -> Iterator[EditOfTree]:
    """Edit "around_call": the `with` of the line, which is all that a compiled function or the
    `forward` of a compiled module does, is entered by a decorator, outside `torch.compile`."""
    scope = scope_of(source)
    function = next(iter(source.functions_at(edit.line)), None)
    if function is None:
        raise EditImpossible(f"line {edit.line} is not inside a function")
    owner = owner_of_forward(source, function)
    block = _whole_body(scope, function)
    items = ", ".join(
        code_of(each.with_changes(comma=libcst.MaybeSentinel.DEFAULT)) for each in block.items
    )
    _require_outside(source, function, block)
    name = fresh_name(source.module, f"around_{function.name.value}")
    called = fresh_name(function, "function")
    decorator = (
        f"def {name}({called}):\n"
        f"    @functools.wraps({called})\n"
        f"    def entered(*args, **kwargs):\n"
        f"        with {items}:\n"
        f"            return {called}(*args, **kwargs)\n"
        f"    return entered\n"
    )
    first = is_compile(scope, function)
    if owner is not None:
        yield Replacement(compiled_instance(scope, owner), Called(name))
    elif not first:
        yield Replacement(only_compile(scope, function), Called(name))
    yield Insertion(owner or function, (decorator,))
    yield Replacement(function, _Without(block, name if first else ""))


def _whole_body(scope: Scope, function: libcst.FunctionDef) -> libcst.With:
    docstring = matchers.SimpleStatementLine(body=[matchers.Expr(matchers.SimpleString())])
    body = [each for each in function.body.body if not matchers.matches(each, docstring)]
    if len(body) == 2 and matchers.matches(body[1], _RETURN_OF_NAMES) and _is_of_torch(scope, body):
        body.pop()
    if len(body) != 1 or not isinstance(body[0], libcst.With):
        raise EditImpossible(f"`{function.name.value}` does more than what stands under its `with`")
    block = body[0]
    if block.asynchronous or function.asynchronous or any(each.asname for each in block.items):
        raise EditImpossible("what the `with` gives is used in it")
    if isinstance(block.body, libcst.SimpleStatementSuite):
        raise EditImpossible("the `with` is written in one line")
    return block


def _is_of_torch(scope: Scope, body: Sequence[libcst.CSTNode]) -> bool:
    """Whether a `with` swallows no exception, after which what stands behind it would run."""
    items = body[0].items if isinstance(body[0], libcst.With) else ()
    calls = [each.item.func for each in items if isinstance(each.item, libcst.Call)]
    names = [scope.imported_name(each) or "" for each in calls]
    return len(names) == len(items) and all(each.startswith("torch.") for each in names)


def _require_outside(source: Source, function: libcst.FunctionDef, block: libcst.With) -> None:
    """What is entered must be the same before the call, and a generator is entered later."""
    own = parameters_of(function) | set(bound_in(source, function))
    for item in block.items:
        if used := names_in(item.item) & own:
            raise EditImpossible(f"`{min(used)}` is a local variable of the function")
    if any(True for _ in source.below(function, libcst.Yield)):
        raise EditImpossible(f"`{function.name.value}` is a generator")


def is_compile(scope: Scope, function: libcst.FunctionDef) -> bool:
    """Whether its first decorator, which is applied last, is `torch.compile`."""
    if not function.decorators:
        return False
    whole = function.decorators[0].decorator
    made = whole.func if isinstance(whole, libcst.Call) else whole
    if scope.imported_name(made) != _COMPILE:
        raise EditImpossible(f"`{function.name.value}` has another decorator outside its compile")
    return True


def only_compile(scope: Scope, function: libcst.FunctionDef) -> libcst.Call:
    """`torch.compile(function)`, where nothing else of the file uses the function."""
    source, name = scope.source, function.name.value
    uses = uses_of(source, source.module, name)
    found = [
        call
        for call in source.below(source.module, libcst.Call)
        if scope.imported_name(call.func) == _COMPILE
        and call.args
        and code_of(call.args[0].value) == name
    ]
    if len(found) != 1 or len(uses) != 2:
        raise EditImpossible(f"`{name}` is not compiled at one place and used nowhere else")
    return found[0]


@dataclass(frozen=True)
class Called:
    """An expression as the only argument of a call."""

    name: str

    def __call__(self, node: libcst.Call) -> libcst.BaseExpression:
        return libcst.Call(libcst.Name(self.name), [libcst.Arg(node)])


@dataclass(frozen=True)
class _Without:
    """A function without its `with`, under another decorator."""

    block: libcst.With
    decorator: str

    def __call__(self, function: libcst.FunctionDef) -> libcst.FunctionDef:
        body: list[Any] = []
        for each in function.body.body:
            if isinstance(each, libcst.With):
                first, *others = list[Any](each.body.body)
                above = [*each.leading_lines, *first.leading_lines]
                body += [first.with_changes(leading_lines=above), *others]
            else:
                body.append(each)
        new = function.with_changes(body=function.body.with_changes(body=body))
        if not self.decorator:
            return new
        first = libcst.Decorator(libcst.Name(self.decorator))
        return new.with_changes(decorators=[first, *function.decorators])
