"""Branches on a tensor's value, as operations: `torch.where` for a choice between values, and
`torch._assert_async` for an error that is raised.

Both sides of a choice are computed then, so both must only compute. A side that is not taken gives
its operands no gradient: 0 times what is not finite would be nan, so operands of divisions, roots
and the like are 1 there.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import libcst
from libcst import matchers

from compilediag.fixes.codemods.edit import Edit, EditImpossible
from compilediag.fixes.codemods.names import (
    fresh_name,
    is_bound_before,
    parameters_of,
    require_not_shared,
    written_in,
)
from compilediag.fixes.codemods.purity import (
    FINITE_AT_ONE,
    Scope,
    code_of,
    dotted,
    is_nonzero_number,
    is_number,
    scope_of,
)
from compilediag.fixes.codemods.reads import is_arithmetic, require_arithmetic_only
from compilediag.fixes.codemods.tree import EditOfTree, Replacement, Source

_RETURN = matchers.SimpleStatementLine(body=[matchers.Return()])
_RAISE = matchers.SimpleStatementLine(body=[matchers.Raise()])
_ASSIGN = matchers.SimpleStatementLine(
    body=[matchers.Assign(targets=[matchers.AssignTarget(target=matchers.Name())])]
)
_ONLY_FINITE = frozenset(("clamp", "nan_to_num", "zeros_like", "full_like", "ones_like"))


def branch(source: Source, edit: Edit) -> Iterator[EditOfTree]:
    """Edit "branch": "assert_async" where only an error is raised, else "choose"."""
    branches = source.below(source.module, libcst.If)
    raising = any(
        edit.line in source.lines_of(each.test) and matchers.matches(each.body.body[-1], _RAISE)
        for each in branches
    )
    asserted = any(
        edit.line in source.lines_of(each) for each in source.below(source.module, libcst.Assert)
    )
    yield from (assert_async if raising or asserted else choose)(source, edit)


def choose(source: Source, edit: Edit) -> Iterator[EditOfTree]:
    """Edit "choose": a branch on a tensor's value, between values, becomes `torch.where`."""
    found = _conditional_at(source, edit.line)
    if isinstance(found, libcst.IfExp):
        yield _chosen_expression(source, found)
    else:
        yield from _chosen_statement(source, found)


def assert_async(source: Source, edit: Edit) -> Iterator[EditOfTree]:
    """Edit "assert_async": an error that is raised for a tensor's value, or an `assert` with a
    message that is made, becomes `torch._assert_async`."""
    for statement in source.below(source.module, libcst.SimpleStatementLine):
        if edit.line in source.lines_of(statement) and len(statement.body) == 1:
            checked = statement.body[0]
            if isinstance(checked, libcst.Assert):
                new = [_asserted(code_of(checked.test), _message(None, checked.msg))]
                yield _replaced(statement, new)
                return
    found = _conditional_at(source, edit.line)
    if not isinstance(found, libcst.If) or found.orelse is not None:
        raise EditImpossible(f"line {edit.line} is no `if` that only raises an error")
    body = found.body.body
    if len(body) != 1 or not matchers.matches(body[0], _RAISE):
        raise EditImpossible(f"the `if` in line {edit.line} does more than raise an error")
    raised = _raised(body[0])
    exception = raised.func if isinstance(raised, libcst.Call) else raised
    name = dotted(exception) if exception is not None else ""
    if not name:
        raise EditImpossible("which error is raised is not evident")
    _require_not_caught(source, name)
    argument = raised.args[0].value if isinstance(raised, libcst.Call) and raised.args else None
    new = _checks(scope_of(source), found.test, _message(name, argument))
    yield _replaced(found, new)


def _conditional_at(source: Source, line: int) -> libcst.If | libcst.IfExp:
    """The only branch that is decided in a line."""
    found: list[libcst.If | libcst.IfExp] = [
        each
        for kind in (libcst.If, libcst.IfExp)
        for each in source.below(source.module, kind)
        if line in source.lines_of(each.test)
    ]
    if len(found) != 1:
        raise EditImpossible(f"line {line} is not one branch")
    if isinstance(source.parent(found[0]), libcst.If):
        raise EditImpossible(f"line {line} is an `elif`")
    return found[0]


# Choices


@dataclass(frozen=True, slots=True)
class _Condition:
    """What decides, as text, and how it reads where it is true and where it is false."""

    scope: Scope
    text: str
    repeated: bool
    """It may stand there more than once."""


@dataclass(frozen=True, slots=True)
class _Side:
    """Assignments, and a value that is returned after them."""

    assigned: tuple[tuple[str, libcst.BaseExpression], ...]
    returned: libcst.BaseExpression | None


def _chosen_expression(source: Source, node: libcst.IfExp) -> EditOfTree:
    scope = scope_of(source)
    function = _function_around(source, node)
    test, then, other = node.test, node.body, node.orelse
    if isinstance(test, libcst.UnaryOperation) and isinstance(test.operator, libcst.Not):
        test, then, other = test.expression, other, then
    _require_condition(scope, test)
    for side in (then, other):
        _require_side(scope, function, node, side, test)
    _require_exact(then, other)
    if is_number(then) and is_number(other):
        _require_arithmetic(scope, function, node)
    text = _as_boolean(scope, test)
    chosen = _where(_Condition(scope, text, repeated=True), then, other)
    return Replacement(node, _Once(node, libcst.parse_expression(chosen)))


def _require_arithmetic(scope: Scope, function: libcst.FunctionDef, node: libcst.IfExp) -> None:
    """Raises where a number may be used for what a tensor is not."""
    statement = scope.source.parent(node)
    target = statement.targets[0].target if isinstance(statement, libcst.Assign) else None
    if isinstance(target, libcst.Name):
        require_arithmetic_only(scope.source, scope, function, target.value)
    elif not is_arithmetic(scope.source, scope, node):
        raise EditImpossible(f"`{code_of(node)}` is a number that may not be a tensor there")


def _chosen_statement(source: Source, node: libcst.If) -> Iterator[EditOfTree]:
    scope, function = scope_of(source), _function_around(source, node)
    outer: libcst.BaseExpression | None = None
    test = node.test
    if isinstance(test, libcst.BooleanOperation):
        if not isinstance(test.operator, libcst.And) or node.orelse is not None:
            raise EditImpossible(f"`{code_of(test)}` is more than one condition")
        outer, test = test.left, test.right
    following = _following_return(source, node) if outer is None else None
    then = _side(node.body)
    other = _side_otherwise(node)
    if then.returned is not None and other.returned is None and following is not None:
        if other.assigned:
            raise EditImpossible("one side returns and the other assigns")
        assert isinstance(following.body[0], libcst.Return), "a return"
        other = _Side((), following.body[0].value)
    else:
        following = None
    if isinstance(test, libcst.UnaryOperation) and isinstance(test.operator, libcst.Not):
        test, then, other = test.expression, other, then
    _require_condition(scope, test)
    for side in (then, other):
        for value in (*(value for _, value in side.assigned), *_parts(side.returned)):
            _require_side(scope, function, node, value, test)
    lines = _converted(source, function, node, scope, test, then, other)
    if outer is not None:
        block = libcst.IndentedBlock([libcst.parse_statement(line) for line in lines])
        kept = libcst.If(outer, block, leading_lines=node.leading_lines)
        yield Replacement(node, _Once(node, _with_comments(node, [kept])))
        return
    yield _replaced(node, lines)
    if following is not None:
        yield Replacement(following, _Once(following, libcst.RemoveFromParent()))


def _converted(
    source: Source,
    function: libcst.FunctionDef,
    node: libcst.If,
    scope: Scope,
    test: libcst.BaseExpression,
    then: _Side,
    other: _Side,
) -> list[str]:
    """The statements that stand in place of a branch."""
    if (then.returned is None) != (other.returned is None):
        raise EditImpossible("only one side returns")
    values = [value for side in (then, other) for _, value in side.assigned]
    values += [value for side in (then, other) for value in _parts(side.returned)]
    text = _as_boolean(scope, test)
    written = {name for side in (then, other) for name, _ in side.assigned}
    hoisted = not isinstance(test, libcst.Name) or test.value in written
    places = len(then.assigned) + len(other.assigned) + len(_parts(then.returned))
    if changed := written & set(written_in(source, function)):
        raise EditImpossible(f"`{min(changed)}` is written into: it may be another variable's too")
    lines: list[str] = []
    if hoisted and (places > 1 or any(_needs_guard(scope, value) for value in values)):
        name = fresh_name(function, "condition")
        lines.append(f"{name} = {text}")
        text = name
    condition = _Condition(scope, text, repeated=False)
    lines += _assignments(source, function, node, condition, then, other)
    if then.returned is not None and other.returned is not None:
        lines.append(_return(condition, then.returned, other.returned))
    return lines


def _assignments(
    source: Source,
    function: libcst.FunctionDef,
    node: libcst.If,
    condition: _Condition,
    then: _Side,
    other: _Side,
) -> Iterator[str]:
    first, second = [name for name, _ in then.assigned], [name for name, _ in other.assigned]
    if first == second and len(set(first)) == len(first):
        for (name, value), (_, instead) in zip(then.assigned, other.assigned, strict=True):
            require_not_shared(function, name)
            _require_exact(value, instead)
            if is_number(value) and is_number(instead):
                require_arithmetic_only(source, condition.scope, function, name)
            yield f"{name} = {_where(condition, value, instead)}"
        return
    for side, taken in ((then, True), (other, False)):
        for name, value in side.assigned:
            if is_number(value):
                require_arithmetic_only(source, condition.scope, function, name)
            require_not_shared(function, name)
            if _is_temporary(source, function, node, name):
                yield f"{name} = {_guarded(condition, value, taken=taken)}"
                continue
            if not is_bound_before(source, function, node, name):
                raise EditImpossible(f"`{name}` may have no value before the branch")
            old = libcst.Name(name)
            pair = (value, old) if taken else (old, value)
            yield f"{name} = {_where(condition, *pair)}"


def _is_temporary(source: Source, function: libcst.FunctionDef, node: libcst.If, name: str) -> bool:
    """Whether a name stands nowhere but in the branch."""
    if name in parameters_of(function):
        return False
    inside = sum(each.value == name for each in source.below(node, libcst.Name))
    return inside == sum(each.value == name for each in source.below(function, libcst.Name))


def _return(
    condition: _Condition, then: libcst.BaseExpression, other: libcst.BaseExpression
) -> str:
    pairs = list(zip(_parts(then), _parts(other), strict=False))
    if len(_parts(then)) != len(_parts(other)):
        raise EditImpossible("the sides return different numbers of values")
    if isinstance(then, libcst.Tuple) != isinstance(other, libcst.Tuple):
        raise EditImpossible("only one side returns a tuple")
    if any(is_number(a) and is_number(b) for a, b in pairs):
        raise EditImpossible("both sides return a number")
    chosen = ", ".join(
        code_of(a) if a.deep_equals(b) else _where(condition, a, b) for a, b in pairs
    )
    return f"return {chosen}{',' * (isinstance(then, libcst.Tuple) and len(pairs) == 1)}"


def _parts(value: libcst.BaseExpression | None) -> list[libcst.BaseExpression]:
    if value is None:
        return []
    if isinstance(value, libcst.Tuple):
        return [element.value for element in value.elements]
    return [value]


def _side(block: libcst.BaseSuite) -> _Side:
    statements = list(block.body)
    returned: libcst.BaseExpression | None = None
    if statements and matchers.matches(statements[-1], _RETURN):
        last = statements.pop()
        assert isinstance(last, libcst.SimpleStatementLine)
        value = last.body[0]
        assert isinstance(value, libcst.Return)
        if value.value is None:
            raise EditImpossible("one side returns nothing")
        returned = value.value
    assigned: list[tuple[str, libcst.BaseExpression]] = []
    for statement in statements:
        if not matchers.matches(statement, _ASSIGN):
            first = code_of(statement).strip().splitlines()[0]
            raise EditImpossible(f"`{first}` is no assignment to a variable")
        assert isinstance(statement, libcst.SimpleStatementLine)
        assignment = statement.body[0]
        assert isinstance(assignment, libcst.Assign)
        target = assignment.targets[0].target
        assert isinstance(target, libcst.Name)
        assigned.append((target.value, assignment.value))
    return _Side(tuple(assigned), returned)


def _side_otherwise(node: libcst.If) -> _Side:
    if node.orelse is None:
        return _Side((), None)
    if isinstance(node.orelse, libcst.If):
        raise EditImpossible("a chain of `elif` is more than one choice")
    return _side(node.orelse.body)


def _following_return(source: Source, node: libcst.If) -> libcst.SimpleStatementLine | None:
    """The `return` right after a branch, in the same block."""
    block = source.parent(node)
    if not isinstance(block, libcst.IndentedBlock):
        return None
    after = block.body[list(block.body).index(node) + 1 :]
    if not after or not matchers.matches(after[0], _RETURN):
        return None
    following = after[0]
    assert isinstance(following, libcst.SimpleStatementLine)
    value = following.body[0]
    return following if isinstance(value, libcst.Return) and value.value is not None else None


def _function_around(source: Source, node: libcst.CSTNode) -> libcst.FunctionDef:
    function = next(source.around(node, libcst.FunctionDef), None)
    if function is None:
        raise EditImpossible("the branch is in no function")
    return function


def _require_condition(scope: Scope, test: libcst.BaseExpression) -> None:
    if isinstance(test, (libcst.BooleanOperation, libcst.NamedExpr)):
        raise EditImpossible(f"`{code_of(test)}` is more than one condition")
    scope.require_pure(test)


def _require_side(
    scope: Scope,
    function: libcst.FunctionDef,
    node: libcst.CSTNode,
    value: libcst.BaseExpression,
    test: libcst.BaseExpression,
) -> None:
    """Raises where a side cannot be computed when it is not taken."""
    scope.require_pure(value)
    if isinstance(value, (libcst.SimpleString, libcst.List, libcst.Tuple)) or (
        isinstance(value, libcst.Name) and value.value in ("None", "True", "False")
    ):
        raise EditImpossible(f"`{code_of(value)}` is no number or tensor")
    source = scope.source
    if scope.is_finiteness_test(test):
        calls = {scope.torch_function(call) for call in source.below(value, libcst.Call)}
        if calls - _ONLY_FINITE or _has_operation(source, value):
            why = "would be computed with what is not finite, and its gradient is not, then"
            raise EditImpossible(f"`{code_of(value)}` {why}")
    for attribute in source.below(value, libcst.Attribute):
        owner = attribute.value
        if isinstance(owner, libcst.Name) and owner.value == "self":
            _require_no_parameter(source, function, node, attribute)


def _has_operation(source: Source, value: libcst.BaseExpression) -> bool:
    found = source.below(value, libcst.BinaryOperation)
    return any(not is_number(each) for each in found)


def _require_no_parameter(
    source: Source, function: libcst.FunctionDef, node: libcst.CSTNode, attribute: libcst.Attribute
) -> None:
    """A parameter that only one side reads has the gradient None where it is not taken, and 0 with
    `torch.where`: optimizers treat them differently."""
    name = attribute.attr.value
    inside = {id(each) for each in source.below(node, libcst.Attribute)}
    everywhere = source.below(function, libcst.Attribute)
    if any(each.deep_equals(attribute) and id(each) not in inside for each in everywhere):
        return
    owner = next(source.around(function, libcst.ClassDef), None)
    assigned = [
        each.value
        for each in (source.below(owner, libcst.Assign) if owner is not None else ())
        if any(_is_own(target.target, name) for target in each.targets)
    ]
    buffers = [
        call
        for call in (source.below(owner, libcst.Call) if owner is not None else ())
        if matchers.matches(
            call, matchers.Call(func=matchers.Attribute(attr=matchers.Name("register_buffer")))
        )
        and code_of(call.args[0].value).strip("'\"") == name
    ]
    if buffers or (assigned and all(map(is_number, assigned))):
        return
    raise EditImpossible(f"`self.{name}` may be a parameter that only one side needs")


def _is_own(target: libcst.BaseExpression, name: str) -> bool:
    return dotted(target) == f"self.{name}"


def _require_exact(then: libcst.BaseExpression, other: libcst.BaseExpression) -> None:
    """Two numbers become a tensor of 32 bits: they must be the same there."""
    for value in (then, other):
        text = code_of(value)
        if is_number(then) and is_number(other):
            number = float(text.replace("_", "").replace(" ", ""))
            if number * 2**20 != int(number * 2**20) or abs(number) > 2**24:
                raise EditImpossible(f"{text} is another number in 32 bits")


def _as_boolean(scope: Scope, test: libcst.BaseExpression) -> str:
    text = code_of(test)
    if scope.is_boolean(test):
        return text
    simple = isinstance(test, (libcst.Name, libcst.Attribute, libcst.Call, libcst.Subscript))
    return f"{text}.bool()" if simple or test.lpar else f"({text}).bool()"


def _where(condition: _Condition, then: libcst.BaseExpression, other: libcst.BaseExpression) -> str:
    chosen = _guarded(condition, then, taken=True), _guarded(condition, other, taken=False)
    return f"torch.where({condition.text}, {', '.join(chosen)})"


def _needs_guard(scope: Scope, value: libcst.BaseExpression) -> bool:
    condition = _Condition(scope, "c", repeated=True)
    return _guarded(condition, value, taken=True) != code_of(value)


def _guarded(condition: _Condition, value: libcst.BaseExpression, *, taken: bool) -> str:
    """A side, with operands of 1 where it is not taken and could be not finite."""
    new = value.visit(_Guard(condition, taken=taken))
    assert isinstance(new, libcst.BaseExpression)
    return code_of(new)


class _Guard(libcst.CSTTransformer):
    def __init__(self, condition: _Condition, *, taken: bool) -> None:
        super().__init__()
        self._condition = condition
        self._taken = taken

    def _one_unless_taken(self, operand: libcst.BaseExpression) -> libcst.BaseExpression:
        text, bare = self._condition.text, code_of(operand.with_changes(lpar=(), rpar=()))
        pair = f"{bare}, 1.0" if self._taken else f"1.0, {bare}"
        return libcst.parse_expression(f"torch.where({text}, {pair})")

    def leave_BinaryOperation(  # noqa: N802 -- libcst's name
        self, original_node: libcst.BinaryOperation, updated_node: libcst.BinaryOperation
    ) -> libcst.BaseExpression:
        left, right = original_node.left, original_node.right
        if isinstance(original_node.operator, libcst.Divide) and not is_nonzero_number(right):
            return updated_node.with_changes(right=self._one_unless_taken(updated_node.right))
        if isinstance(original_node.operator, libcst.Power):
            if isinstance(right, libcst.Integer) and right.evaluated_value > 0:
                return updated_node
            if is_number(left):
                return updated_node.with_changes(right=self._one_unless_taken(updated_node.right))
            return updated_node.with_changes(left=self._one_unless_taken(updated_node.left))
        return updated_node

    def leave_Call(  # noqa: N802 -- libcst's name
        self, original_node: libcst.Call, updated_node: libcst.Call
    ) -> libcst.BaseExpression:
        scope = self._condition.scope
        name = scope.torch_function(original_node)
        if name not in FINITE_AT_ONE:
            return updated_node
        if name in ("pow", "div"):
            raise EditImpossible(f"`{code_of(original_node)}` may be not finite")
        if scope.is_method(original_node):
            function = updated_node.func
            assert isinstance(function, libcst.Attribute), "a method"
            operand = self._one_unless_taken(function.value)
            return updated_node.with_changes(func=function.with_changes(value=operand))
        if not updated_node.args:
            return updated_node
        first = updated_node.args[0]
        new = first.with_changes(value=self._one_unless_taken(first.value))
        return updated_node.with_changes(args=[new, *updated_node.args[1:]])


# Errors


def _raised(statement: libcst.CSTNode) -> libcst.BaseExpression | None:
    assert isinstance(statement, libcst.SimpleStatementLine)
    small = statement.body[0]
    assert isinstance(small, libcst.Raise)
    return small.exc


def _require_not_caught(source: Source, name: str) -> None:
    """Another error is raised: what catches this one would not."""
    for handler in source.below(source.module, libcst.ExceptHandler):
        caught = code_of(handler.type) if handler.type is not None else "everything"
        if {name, "Exception", "BaseException", "everything"} & set(
            caught.strip("()").replace(",", " ").split()
        ):
            raise EditImpossible(f"the file catches {caught}, and another error would be raised")


def _message(name: str | None, argument: libcst.BaseExpression | None) -> str:
    """What is known of a message as it is written; values in it are named, not shown."""
    text = ""
    if isinstance(argument, libcst.ConcatenatedString):
        text = "".join(map(_text_of, (argument.left, argument.right)))
    elif argument is not None:
        text = _text_of(argument)
    return ": ".join(part for part in (name, text) if part) or "assertion failed"


def _text_of(value: libcst.CSTNode) -> str:
    if isinstance(value, libcst.SimpleString):
        return str(value.evaluated_value)
    if isinstance(value, libcst.FormattedString):
        return "".join(map(_part_of, value.parts))
    if isinstance(value, libcst.ConcatenatedString):
        return _text_of(value.left) + _text_of(value.right)
    return ""


def _part_of(part: libcst.BaseFormattedStringContent) -> str:
    if isinstance(part, libcst.FormattedStringText):
        return part.value
    return (
        f"{{{code_of(part.expression)}}}"
        if isinstance(part, libcst.FormattedStringExpression)
        else ""
    )


def _checks(scope: Scope, test: libcst.BaseExpression, message: str) -> list[str]:
    if isinstance(test, libcst.BooleanOperation) and not test.lpar:
        if isinstance(test.operator, libcst.Or):
            scope.require_pure(test.right)
            return _checks(scope, test.left, message) + _checks(scope, test.right, message)
        (check,) = _checks(scope, test.right, message)
        return [f"if {code_of(test.left)}:\n    {check}"]
    if isinstance(test, (libcst.BooleanOperation, libcst.NamedExpr)):
        raise EditImpossible(f"`{code_of(test)}` is more than one condition")
    if isinstance(test, libcst.UnaryOperation) and isinstance(test.operator, libcst.Not):
        return [_asserted(code_of(test.expression), message)]
    text = code_of(test)
    if not scope.is_boolean(test):
        return [_asserted(f"torch.logical_not({text})", message)]
    return [_asserted(f"~{text}" if isinstance(test, libcst.Call) else f"~({text})", message)]


def _asserted(condition: str, message: str) -> str:
    quoted = '"' + message.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n") + '"'
    return f"torch._assert_async({condition}, {quoted})"


# Statements in place of others


class _Once:
    """Something in place of a node that no other edit has changed."""

    def __init__(self, node: libcst.CSTNode, new: Any) -> None:
        self._node = node
        self._new = new

    def __call__(self, updated: libcst.CSTNode) -> Any:
        if not updated.deep_equals(self._node):
            raise EditImpossible("one statement would be edited in two ways")
        return self._new


def _replaced(node: libcst.If | libcst.SimpleStatementLine, lines: Sequence[str]) -> Replacement:
    statements = [libcst.parse_statement(line) for line in lines]
    return Replacement(node, _Once(node, _with_comments(node, statements)))


def _with_comments(
    node: libcst.If | libcst.SimpleStatementLine, statements: Iterable[Any]
) -> libcst.FlattenSentinel[Any]:
    """All comments of a statement above what stands there now."""
    first, *others = statements
    above = node.leading_lines
    if isinstance(node, libcst.SimpleStatementLine):
        new = first.with_changes(
            leading_lines=above,
            **({"trailing_whitespace": node.trailing_whitespace} if not others else {}),
        )
        return libcst.FlattenSentinel([new, *others])
    inside = [
        libcst.EmptyLine(comment=comment)
        for comment in matchers.findall(node.with_changes(leading_lines=()), matchers.Comment())
        if isinstance(comment, libcst.Comment)
    ]
    return libcst.FlattenSentinel([first.with_changes(leading_lines=[*above, *inside]), *others])
