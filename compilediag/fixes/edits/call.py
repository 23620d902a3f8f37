"""The operator "call": something else is passed in a call, or done before it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import libcst

from compilediag.fixes.edits import effects
from compilediag.fixes.edits.tree import EditOfTree, Filled, Insertion, Replacement, Source
from compilediag.rules.changes import Edit, EditImpossible, normalized

_NAME = "given"


def edit_argument(source: Source, edit: Edit) -> Iterator[EditOfTree]:
    """Kind "argument": passes something made of an argument. `code`: the call as `ast.unparse`
    writes it, which of its arguments, and what is passed, with `_` for the argument:
    "_.contiguous()"."""
    text, index, template = edit.code
    for call in _calls(source, edit.line, text):
        passed = call.args[int(index)]
        if passed.star:
            raise EditImpossible(f"line {edit.line} passes what it holds, not the argument itself")
        yield Replacement(passed.value, Filled(template))


def add_keyword(source: Source, edit: Edit) -> Iterator[EditOfTree]:
    """Kind "keyword": passes one more argument by name. `code`: the call as `ast.unparse` writes
    it, the keyword, and the expression."""
    text, name, expression = edit.code
    for call in _calls(source, edit.line, text):
        if any(each.keyword is not None and each.keyword.value == name for each in call.args):
            raise EditImpossible(f"line {edit.line} passes {name} already")
        yield Replacement(call, _WithKeyword(name, expression))


@dataclass(frozen=True, slots=True)
class _WithKeyword:
    name: str
    expression: str

    def __call__(self, call: libcst.Call) -> libcst.Call:
        made = libcst.parse_expression(f"f({self.name}={self.expression})")
        return call.with_changes(args=[*call.args, *libcst.ensure_type(made, libcst.Call).args])


def insert_before(source: Source, edit: Edit) -> Iterator[EditOfTree]:
    """Kind "before": puts `code`, statements of a line each, in front of the statement."""
    statement = source.statement_at(edit.line)
    used = {name for line in edit.code for name in effects.names_in(libcst.parse_statement(line))}
    if inside := used & effects.bound_inside(source, statement):
        raise EditImpossible(f"`{min(inside)}` is assigned only inside the statement")
    yield Insertion(statement, edit.code)


def assign_arguments(source: Source, edit: Edit) -> Iterator[EditOfTree]:
    """Kind "assigned": assigns arguments to variables, does something with each, and passes them.
    `code`: the text of the call, then pairs of an argument's text and a statement with `{}` for
    its variable."""
    text = normalized(edit.code[0])
    call, *others = _calls(source, edit.line, text)
    if others:
        raise EditImpossible(f"line {edit.line} has the call {text} more than once")
    statement = next(source.around(call, libcst.SimpleStatementLine), None)
    if statement is None or len(statement.body) != 1:
        raise EditImpossible(f"`{source.code(call)}` is not in a statement of its own")
    effects.require_first(source, call, statement)
    wanted = [normalized(text) for text in edit.code[1::2]]
    arguments = _arguments(source, call, {*wanted})
    several = len(arguments) > 1
    names = {
        text: effects.fresh_name(source, f"{_NAME}{at}" if several else _NAME)
        for at, text in enumerate(arguments, 1)
    }
    for text, value in arguments.items():
        yield Replacement(value, Filled(names[text]))
    made = [f"{name} = {text}" for text, name in names.items()]
    done = [
        template.format(names[text]) for text, template in zip(wanted, edit.code[2::2], strict=True)
    ]
    yield Insertion(statement, (*made, *done))


def _arguments(
    source: Source, call: libcst.Call, wanted: set[str]
) -> dict[str, libcst.BaseExpression]:
    """The arguments with these texts, in their order. What is computed before one of them is
    computed after it with the edit: that must be plain."""
    found: dict[str, libcst.BaseExpression] = {}
    for each in call.args:
        text = normalized(source.code(each.value))
        if text in wanted and text not in found and not each.star:
            found[text] = each.value
        elif len(found) < len(wanted):
            effects.require_plain(source, each)
    if len(found) < len(wanted):
        raise EditImpossible(f"the call does not pass `{min(wanted - {*found})}`")
    return found


def _calls(source: Source, line: int, text: str) -> list[libcst.Call]:
    """The calls around a line that read so, but for quotes, blanks and comments; at least one."""
    found = [
        call
        for call in source.below(source.module, libcst.Call)
        if line in source.lines_of(call) and normalized(source.code(call)) == text
    ]
    if not found:
        raise EditImpossible(f"line {line} has no call {text}")
    return found
