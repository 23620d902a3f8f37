"""Terms of a loss that only some steps have: computed in each, and left out by a number."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import libcst
from libcst import matchers

from compilediag.fixes.codemods.edit import Edit, EditImpossible
from compilediag.fixes.codemods.guarded import Condition, guarded
from compilediag.fixes.codemods.placed import replaced
from compilediag.fixes.codemods.purity import Scope, code_of, scope_of
from compilediag.fixes.codemods.tree import EditOfTree, Source

_BACKWARD = matchers.Call(func=matchers.Attribute(attr=matchers.Name("backward")))


def every_term(source: Source, edit: Edit) -> Iterator[EditOfTree]:
    """Edit "every_term": before `loss.backward()` in the line, `if test: loss = loss + term` is
    a sum whose term is 0 where the test fails: the backward graph is the same in every step."""
    scope = scope_of(source)
    calls = [
        each
        for each in source.below(source.module, libcst.Call)
        if edit.line in source.lines_of(each) and matchers.matches(each, _BACKWARD)
    ]
    owner = calls[0].func if len(calls) == 1 else None
    if not isinstance(owner, libcst.Attribute) or not isinstance(owner.value, libcst.Name):
        raise EditImpossible(
            f"line {edit.line} does not have exactly one `backward()` of a variable"
        )
    loss = owner.value.value
    found = [(each, _terms(scope, each, loss)) for each in _before(source, calls[0])]
    made = [(each, lines) for each, lines in found if lines]
    if not made:
        raise EditImpossible(f"no branch adds a term to `{loss}`")
    for each, lines in made:
        yield replaced(each, lines)


def _before(source: Source, call: libcst.CSTNode) -> Iterator[libcst.If]:
    """Branches before it, in the blocks that it stands in."""
    child: libcst.CSTNode = call
    for block in source.around(call, libcst.CSTNode):
        if isinstance(block, (libcst.FunctionDef, libcst.Lambda)):
            return
        if isinstance(block, libcst.IndentedBlock):
            statements: Sequence[libcst.CSTNode] = block.body
            at = next(at for at, each in enumerate(statements) if each is child)
            yield from (each for each in statements[:at] if isinstance(each, libcst.If))
        child = block


def _terms(scope: Scope, branch: libcst.If, loss: str) -> list[str]:
    """The statements in place of a branch; none where it is about something else.

    Raises:
        EditImpossible: it does more with the loss than add to it.
    """
    if not any(each.value == loss for each in scope.source.below(branch.body, libcst.Name)):
        return []
    why = EditImpossible(f"`if {code_of(branch.test)}` does more than add to `{loss}`")
    if branch.orelse is not None or any(True for _ in scope.source.below(branch.test, libcst.Call)):
        raise why
    condition = Condition(scope, f"torch.tensor({code_of(branch.test)})", repeated=True)
    lines: list[str] = []
    for statement in branch.body.body:
        small = statement.body[0] if isinstance(statement, libcst.SimpleStatementLine) else None
        term = _term(small, loss) if small is not None else None
        if term is None or any(
            each.value == loss for each in scope.source.below(term, libcst.Name)
        ):
            raise why
        scope.require_pure(term)
        chosen = guarded(condition, term, taken=True)
        lines.append(f"{loss} = {loss} + torch.where({condition.text}, {chosen}, 0.0)")
    return lines


def _term(statement: libcst.CSTNode, loss: str) -> libcst.BaseExpression | None:
    """What is added; None for anything else."""
    if isinstance(statement, libcst.AugAssign) and isinstance(statement.operator, libcst.AddAssign):
        return statement.value if code_of(statement.target) == loss else None
    if not isinstance(statement, libcst.Assign) or len(statement.targets) != 1:
        return None
    value = statement.value
    if code_of(statement.targets[0].target) != loss or not isinstance(
        value, libcst.BinaryOperation
    ):
        return None
    added = isinstance(value.operator, libcst.Add) and code_of(value.left) == loss
    return value.right if added else None
