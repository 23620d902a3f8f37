"""Errors that are raised for a tensor's value, as `torch._assert_async`."""

from __future__ import annotations

from collections.abc import Iterator

import libcst
from libcst import matchers

from compilediag.fixes.codemods.edit import Edit, EditImpossible
from compilediag.fixes.codemods.placed import conditional_at, replaced
from compilediag.fixes.codemods.purity import Scope, code_of, dotted, scope_of
from compilediag.fixes.codemods.tree import EditOfTree, Source

RAISE = matchers.SimpleStatementLine(body=[matchers.Raise()])


def assert_async(source: Source, edit: Edit) -> Iterator[EditOfTree]:
    """Edit "assert_async": an error that is raised for a tensor's value, or an `assert` with a
    message that is made, becomes `torch._assert_async`."""
    for statement in source.below(source.module, libcst.SimpleStatementLine):
        if edit.line in source.lines_of(statement) and len(statement.body) == 1:
            checked = statement.body[0]
            if isinstance(checked, libcst.Assert):
                new = [_asserted(code_of(checked.test), _message(None, checked.msg))]
                yield replaced(statement, new)
                return
    found = conditional_at(source, edit.line)
    if (
        not isinstance(found, libcst.If)
        or found.orelse is not None
        or isinstance(source.parent(found), libcst.If)
    ):
        raise EditImpossible(f"line {edit.line} is no `if` that only raises an error")
    body = found.body.body
    if len(body) != 1 or not matchers.matches(body[0], RAISE):
        raise EditImpossible(f"the `if` in line {edit.line} does more than raise an error")
    raised = _raised(body[0])
    exception = raised.func if isinstance(raised, libcst.Call) else raised
    name = dotted(exception) if exception is not None else ""
    if not name:
        raise EditImpossible("which error is raised is not evident")
    _require_not_caught(source, name)
    argument = raised.args[0].value if isinstance(raised, libcst.Call) and raised.args else None
    new = _checks(scope_of(source), found.test, _message(name, argument))
    yield replaced(found, new)


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
            raise EditImpossible(
                f"the file catches {caught}, but a different error would be raised"
            )


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
