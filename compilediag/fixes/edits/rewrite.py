"""All edits of a file at once: text in, text out.

Three operators make them: "call" (something else is passed in a call, or done before it), "wrap"
(`FixedShape` around what is compiled, `torch.compiler.disable` around a hook) and, in its own
module, `tensorize` (a number as a 0-dim tensor).
"""

from __future__ import annotations

import ast
import contextlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

import libcst
from libcst import matchers

from compilediag.fixes.edits import effects, tensorize
from compilediag.fixes.edits.tree import (
    EditOfTree,
    Filled,
    Insertion,
    Replacement,
    Source,
    with_edits,
    with_imports,
)
from compilediag.rules.changes import Edit, EditImpossible, NothingToEdit, normalized

# --- call ----------------------------------------------------------------------------------------

_NAME = "given"


def edit_argument(source: Source, edit: Edit) -> Iterator[EditOfTree]:
    """Kind "argument": pass something made of an argument. `code`: the call as `ast.unparse` has
    it, which of its arguments, and what is passed, with `_` for it: "_.contiguous()"."""
    text, index, template = edit.code
    for call in _calls(source, edit.line, text):
        passed = call.args[int(index)]
        if passed.star:
            raise EditImpossible(f"line {edit.line} passes what it holds, not the argument itself")
        yield Replacement(passed.value, Filled(template))


def add_keyword(source: Source, edit: Edit) -> Iterator[EditOfTree]:
    """Kind "keyword": pass one more argument by name. `code`: the call as `ast.unparse` writes it,
    the keyword, and the expression."""
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
    """Kind "before": put `code`, statements of a line each, in front of the statement."""
    statement = source.statement_at(edit.line)
    used = {name for line in edit.code for name in effects.names_in(libcst.parse_statement(line))}
    if inside := used & effects.bound_inside(source, statement):
        raise EditImpossible(f"`{min(inside)}` is assigned only inside the statement")
    yield Insertion(statement, edit.code)


def assign_arguments(source: Source, edit: Edit) -> Iterator[EditOfTree]:
    """Kind "assigned": assign arguments to variables, do something with each, and pass them.
    `code`: the call, then pairs of an argument and a statement with `{}` for its variable."""
    text = normalized(edit.code[0])
    call, *others = _calls(source, edit.line, text)
    if others:
        raise EditImpossible(f"line {edit.line} has the call {text} more than once")
    statement = next(source.around(call, libcst.SimpleStatementLine), None)
    if statement is None or len(statement.body) != 1:
        raise EditImpossible(f"`{source.code(call)}` is not in a statement of its own")
    effects.require_first(source, call, statement)
    wanted = [normalized(text) for text in edit.code[1::2]]
    # The arguments with these texts, in their order. What is computed before one of them is
    # computed after it with the edit: that must be plain.
    missing, arguments = {*wanted}, dict[str, libcst.BaseExpression]()
    for each in call.args:
        argument = normalized(source.code(each.value))
        if argument in missing and not each.star:
            arguments[argument] = each.value
            missing.remove(argument)
        elif missing:
            effects.require_plain(source, each)
    if missing:
        raise EditImpossible(f"the call does not pass `{min(missing)}`")
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


def _calls(source: Source, line: int, text: str) -> list[libcst.Call]:
    """Find the calls around a line that read so, but for quotes, blanks and comments; one or
    more."""
    found = [
        call
        for call in source.below(source.module, libcst.Call)
        if line in source.lines_of(call) and normalized(source.code(call)) == text
    ]
    if not found:
        raise EditImpossible(f"line {line} has no call {text}")
    return found


# --- wrap ----------------------------------------------------------------------------------------

_SHAPE = matchers.Name("FixedShape") | matchers.Attribute(attr=matchers.Name("FixedShape"))
_BUCKETS = 2  #: Place of `buckets` among the arguments of `FixedShape`.

_REGISTER = matchers.Call(
    func=matchers.Attribute(
        attr=matchers.Name(
            value=matchers.MatchIfTrue(
                lambda name: name.startswith("register_") and name.endswith("_hook")
            )
        )
    )
)
_DISABLED = Filled("torch.compiler.disable(_)")


def wrap_in_fixed_shape(source: Source, edit: Edit) -> Iterator[EditOfTree]:
    """Kind "fixed_shape": put `compilediag.FixedShape(…, arguments)` around what is compiled under
    a name; `code` is the name and the arguments."""
    name, arguments = edit.code
    node = _compiled(source, name)
    if isinstance(node, libcst.FunctionDef):
        yield Replacement(node, _Followed(f"{name} = compilediag.FixedShape({name}, {arguments})"))
    else:
        yield Replacement(node.value, Filled(f"compilediag.FixedShape(_, {arguments})"))


def _compiled(source: Source, name: str) -> libcst.Assign | libcst.FunctionDef:
    """Find the statement that gives the name what `torch.compile` returns, and is the last to give
    it anything."""
    statements: list[libcst.Assign | libcst.FunctionDef] = []
    for each in effects.bindings(source, name):
        parent = source.parent(each)
        if isinstance(parent, libcst.AssignTarget):
            parent = source.parent(parent)
        if not isinstance(parent, (libcst.Assign, libcst.FunctionDef)):
            raise EditImpossible(f"{name} gets other values too")
        statements.append(parent)
    if not statements:
        raise EditImpossible(f"{name} is not set in the file")
    last = statements[-1]
    if isinstance(last, libcst.FunctionDef):
        compiled = any(_is_compile(source, each.decorator) for each in last.decorators)
        alone = len(statements) == 1
    else:
        is_call = isinstance(last.value, libcst.Call) and len(last.targets) == 1
        compiled = is_call and _is_compile(source, last.value)
        blocks = {_block_of(source, each) for each in statements}
        alone = len(blocks) == 1 and all(isinstance(each, libcst.Assign) for each in statements)
    if not compiled:
        raise EditImpossible(f"{name} is not what torch.compile gives")
    if not alone or isinstance(_block_of(source, last), libcst.ClassDef):
        raise EditImpossible(f"{name} is set at several places, or in a class")
    return last


def _is_compile(source: Source, node: libcst.BaseExpression) -> bool:
    function = node.func if isinstance(node, libcst.Call) else node
    return source.imported_name(function) == "torch.compile" or matchers.matches(
        function, matchers.Attribute(value=matchers.Name("torch"), attr=matchers.Name("compile"))
    )


def _block_of(source: Source, node: libcst.CSTNode) -> libcst.CSTNode:
    """Find the statement whose body a statement is in, or the module."""
    kinds = (libcst.BaseCompoundStatement, libcst.Module)
    return next(each for each in source.around(node, libcst.CSTNode) if isinstance(each, kinds))


@dataclass(frozen=True, slots=True)
class _Followed:
    """A statement behind a function."""

    line: str

    def __call__(self, function: libcst.FunctionDef) -> Any:
        return libcst.FlattenSentinel([function, libcst.parse_statement(f"\n\n{self.line}")])


def replace_buckets(source: Source, edit: Edit) -> Iterator[EditOfTree]:
    """Kind "fixed_shape_buckets": write other sizes for the one `FixedShape` of the file that has
    the given ones as literals; `code` is those and the new ones."""
    before, after = edit.code
    found: list[libcst.BaseExpression] = []
    for call in source.below(source.module, libcst.Call):
        if not matchers.matches(call.func, _SHAPE):
            continue
        for index, argument in enumerate(call.args):
            named = argument.keyword is not None and argument.keyword.value == "buckets"
            placed = argument.keyword is None and not argument.star and index == _BUCKETS
            with contextlib.suppress(ValueError, SyntaxError):  # no literal
                value = ast.literal_eval(source.code(argument.value)) if named or placed else None
                if value == ast.literal_eval(before):
                    found.append(argument.value)
    if len(found) != 1:
        raise EditImpossible(f"{len(found)} FixedShapes of the file have buckets={before}")
    yield Replacement(found[0], Filled(after))


def disable_hook(source: Source, edit: Edit) -> Iterator[EditOfTree]:
    """Kind "disabled_hook": register the function around the line as `torch.compiler.disable`
    returns it."""
    for node in _registered(source, edit):
        yield Replacement(node, _DISABLED)


def _registered(source: Source, edit: Edit) -> list[effects.NameOrAttribute]:
    """Find the names of the function around the line in each call that registers it."""
    functions = source.functions_at(edit.line)
    if not functions:
        raise EditImpossible(f"line {edit.line} is not inside a function")
    hook = functions[0]
    found = [
        node
        for call in source.below(source.module, libcst.Call)
        if matchers.matches(call, _REGISTER)
        for argument in call.args
        for node in _names_of(source, argument.value, hook)
    ]
    if not found:
        raise NothingToEdit(f"no call of the file registers {hook.name.value} by its name")
    return found


def _names_of(
    source: Source, argument: libcst.BaseExpression, hook: libcst.FunctionDef
) -> Iterator[effects.NameOrAttribute]:
    """Find names of a function, or of a method whose name no other has."""
    name = hook.name.value
    if isinstance(source.parent(source.parent(hook)), libcst.ClassDef):
        functions = source.below(source.module, libcst.FunctionDef)
        if [each.name.value for each in functions].count(name) == 1:
            attributes = source.below(argument, libcst.Attribute)
            yield from (node for node in attributes if node.attr.value == name)
        return
    for node in source.below(argument, libcst.Name):
        bound = [getattr(each, "node", None) for each in source.scope(node)[node.value]]
        if node.value == name and source.is_variable(node) and bound == [hook]:
            yield node


# --- all edits of a file -------------------------------------------------------------------------

Operator = Callable[[Source, Edit], Iterator[EditOfTree]]

OPERATORS: Mapping[str, Operator] = MappingProxyType(
    {
        "argument": edit_argument,
        "assigned": assign_arguments,
        "before": insert_before,
        "disabled_hook": disable_hook,
        "fixed_shape": wrap_in_fixed_shape,
        "fixed_shape_buckets": replace_buckets,
        "keyword": add_keyword,
        "number_as_tensor": tensorize.make_tensor,
    }
)
"""By `Edit.kind`. Invariant: every kind that a rule makes an edit of is one of them."""


def rewrite(text: str, edits: Sequence[Edit]) -> str:
    """Rewrite the text of a file with edits; imports that they need are added.

    Raises:
        EditImpossible: one of them does not fit the text, or would not be valid Python; nothing is
            edited then.
    """
    written = Source(text)
    numbers = {edit.code[0] for edit in edits if edit.kind == "number_as_tensor"}
    source = _separated(written, numbers)
    try:
        found = [
            each for edit in dict.fromkeys(edits) for each in OPERATORS[edit.kind](source, edit)
        ]
        tree = with_edits(source, found)
    except libcst.ParserSyntaxError as error:
        raise EditImpossible(f"the edit is not valid Python: {error.message}") from error
    if source is not written and not _shared_lines(written):
        edited = Source(tree.code)
        tree = with_edits(edited, [Replacement(each, _on_lines) for each in _shared_lines(edited)])
    return with_imports(tree, ("torch", "compilediag")).code


def show_edit(text: str, edit: Edit) -> tuple[int, str] | None:
    """Show a line of the file that an edit changes, and how it reads then, where the edit is made
    at another place than the one it names; None for other edits.

    Raises:
        EditImpossible: the edit cannot be made.
    """
    if edit.kind != "disabled_hook":
        return None
    source = Source(text)
    node = _registered(source, edit)[0]
    call = next(
        each for each in source.around(node, libcst.Call) if matchers.matches(each, _REGISTER)
    )
    new = call.deep_replace(node, _DISABLED(node))
    assert isinstance(new, libcst.Call), "one of its parts is another"
    return source.lines_of(call).start, " ".join(source.code(new).split())


# Assignments of several names or attributes at once, written one by one in the same line: edits of
# one of them need a statement that sets it alone. A line each is made of them when all is edited.


def _separated(source: Source, names: set[str]) -> Source:
    """Split `a, b = x, y` and `a = b = 0` into statements of their own where a name is one of
    these: only where the order of the assignments makes no difference."""
    found: list[Replacement] = []
    for line in source.below(source.module, libcst.SimpleStatementLine):
        small = line.body[0]
        is_alone = len(line.body) == 1
        pairs = _pairs(small) if is_alone and isinstance(small, libcst.Assign) else []
        targets = [source.code(target) for target, _ in pairs]
        set_here = {text.rpartition(".")[2] for text in targets}
        if len(pairs) < 2 or not names & set_here or len({*targets}) < len(targets):
            continue
        # What is computed from an object may depend on the attribute that it gets.
        owners = {text.rpartition(".")[0] for text in targets}
        computed = [
            each for _, each in pairs[1:] if not isinstance(each, (libcst.Name, *effects.LITERALS))
        ]
        changed = any(effects.names_in(value) & set_here for _, value in pairs)
        if changed or any(effects.names_in(value) & owners for value in computed):
            continue
        body = [libcst.Assign([libcst.AssignTarget(target)], value) for target, value in pairs]
        new = line.with_changes(body=body)
        found.append(Replacement(line, lambda _, new=new: new))
    return Source(with_edits(source, found).code) if found else source


def _pairs(
    assign: libcst.Assign,
) -> list[tuple[libcst.BaseAssignTargetExpression, libcst.BaseExpression]]:
    """Pair each variable, or attribute of one, with its value; nothing where one is neither."""
    value, targets = assign.value, [each.target for each in assign.targets]
    values = [value] * len(targets)
    if len(targets) > 1:
        is_bool = isinstance(value, libcst.Name) and value.value in ("True", "False")
        if not is_bool and not isinstance(value, (libcst.Integer, libcst.Float)):
            return []
    else:
        if not isinstance(targets[0], libcst.Tuple) or not isinstance(value, libcst.Tuple):
            return []
        elements = (*targets[0].elements, *value.elements)
        if any(isinstance(each, libcst.StarredElement) for each in elements):
            return []
        targets = [each.value for each in targets[0].elements]
        values = [each.value for each in value.elements]
    named = [each.value if isinstance(each, libcst.Attribute) else each for each in targets]
    if len(targets) != len(values) or not all(isinstance(each, libcst.Name) for each in named):
        return []
    return list(zip(targets, values, strict=True))  # pyright: ignore[reportReturnType]


def _shared_lines(source: Source) -> list[libcst.SimpleStatementLine]:
    lines = source.below(source.module, libcst.SimpleStatementLine)
    return [line for line in lines if len(line.body) > 1]


def _on_lines(
    line: libcst.SimpleStatementLine,
) -> libcst.FlattenSentinel[libcst.SimpleStatementLine]:
    alone = [small.with_changes(semicolon=libcst.MaybeSentinel.DEFAULT) for small in line.body]
    made = [libcst.SimpleStatementLine([each]) for each in alone]
    made[0] = made[0].with_changes(leading_lines=line.leading_lines)
    made[-1] = made[-1].with_changes(trailing_whitespace=line.trailing_whitespace)
    return libcst.FlattenSentinel(made)
