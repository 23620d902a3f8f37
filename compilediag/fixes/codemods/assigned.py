"""What a call computes for an argument, assigned to a variable before the call."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import libcst

from compilediag.fixes.codemods.arguments import Made, call_with_text
from compilediag.fixes.codemods.edit import Edit, EditImpossible, normalized
from compilediag.fixes.codemods.names import fresh_name
from compilediag.fixes.codemods.purity import code_of, dotted
from compilediag.fixes.codemods.tree import EditOfTree, Insertion, Replacement, Source

_NAME = "given"
_CONSTANTS = (libcst.Integer, libcst.Float, libcst.SimpleString)


def assigned(source: Source, edit: Edit) -> Iterator[EditOfTree]:
    """Kind "assigned": assigns arguments to variables, does something with each, and passes them.
    `code`: the text of the call, then pairs of an argument's text and a statement with `{}` for
    its variable."""
    call = call_with_text(source, edit.line, edit.code[0])
    texts = [normalized(text) for text in edit.code[1::2]]
    pairs = [*zip(texts, edit.code[2::2], strict=True)]
    statement = next(source.around(call, libcst.SimpleStatementLine), None)
    if statement is None or len(statement.body) != 1:
        raise EditImpossible(f"`{code_of(call)}` is not in a statement of its own")
    _require_first(source, call, statement)
    arguments = _arguments(call, {*texts})
    several = len(arguments) > 1
    names: dict[str, str] = {}
    for at, (text, value) in enumerate(arguments.items(), 1):
        names[text] = fresh_name(source.module, f"{_NAME}{at}" if several else _NAME)
        yield Replacement(value, Made(names[text]))
    made = [f"{name} = {text}" for text, name in names.items()]
    done = [template.format(names[text]) for text, template in pairs]
    yield Insertion(statement, (*made, *done))


def _arguments(call: libcst.Call, wanted: set[str]) -> dict[str, libcst.BaseExpression]:
    """The arguments with these texts, in their order. What is computed before one of them is
    computed after it with the edit: that must be plain."""
    found: dict[str, libcst.BaseExpression] = {}
    for each in call.args:
        text = normalized(code_of(each.value))
        if text in wanted and text not in found and not each.star:
            found[text] = each.value
        elif len(found) < len(wanted):
            _require_plain(each)
    if len(found) < len(wanted):
        raise EditImpossible(f"the call does not pass `{min(wanted - {*found})}`")
    return found


def _require_first(source: Source, call: libcst.Call, statement: libcst.CSTNode) -> None:
    """Nothing of the statement but plain variables may be computed before the arguments."""
    _require_plain(call.func)
    child: libcst.CSTNode = call
    while (parent := source.parent(child)) is not statement:
        if isinstance(parent, libcst.Call) and child is not parent.func:
            _require_plain(parent.func)
            for each in parent.args[: _index(parent.args, child)]:
                _require_plain(each)
        elif isinstance(parent, libcst.BinaryOperation) and child is parent.right:
            _require_plain(parent.left)
        elif isinstance(parent, libcst.AugAssign):
            _require_plain(parent.target)
        elif not _is_computed_at_once(parent, child):
            raise EditImpossible(f"`{code_of(call)}` may not be the first that is computed")
        child = parent


def _index(arguments: Sequence[libcst.Arg], node: libcst.CSTNode) -> int:
    return next(at for at, each in enumerate(arguments) if each is node)


def _is_computed_at_once(parent: libcst.CSTNode, child: libcst.CSTNode) -> bool:
    """Whether a node always computes a child, before anything else."""
    if isinstance(parent, (libcst.Attribute, libcst.Subscript, libcst.Assign, libcst.AnnAssign)):
        return child is parent.value
    if isinstance(parent, libcst.BinaryOperation):
        return child is parent.left
    whole = (libcst.Call, libcst.Arg, libcst.Expr, libcst.Return, libcst.UnaryOperation)
    return isinstance(parent, whole)


def _require_plain(node: libcst.CSTNode) -> None:
    """Nothing happens when it is computed; `*items` takes the items."""
    value = node.value if isinstance(node, libcst.Arg) and not node.star else node
    if not dotted(value) and not isinstance(value, _CONSTANTS):
        raise EditImpossible(f"`{code_of(node)}` would be computed later")
