"""What of a compiled function can be computed before the call: it needs nothing that the function
makes, is the same then, and is used as a tensor could be."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import libcst
from libcst import matchers

from compilediag.fixes.codemods.branches import require_arithmetic
from compilediag.fixes.codemods.choices import CHOICE, is_function_of_module, unexpected
from compilediag.fixes.codemods.edit import Edit, EditImpossible
from compilediag.fixes.codemods.names import bound_in, names_in, uses_of, written_in
from compilediag.fixes.codemods.neutral import operation_of
from compilediag.fixes.codemods.purity import Scope, code_of, dotted, is_number, scope_of
from compilediag.fixes.codemods.tree import Replacement, Source

_DECIDING = frozenset(("startswith", "endswith", "isdigit", "isalpha", "isupper", "islower"))
_OF_TEXT = _DECIDING | {"lower", "upper", "strip", "lstrip", "rstrip", "casefold"}


_BINDING = ("AssignTarget", "AnnAssign", "AugAssign", "For", "CompFor", "NamedExpr", "AsName")


@dataclass(slots=True)
class Parts:
    """What is computed before the call."""

    values: list[libcst.BaseExpression] = field(default_factory=list[libcst.BaseExpression])
    """Expressions, each with a tensor in its place."""
    tensors: dict[libcst.BaseExpression, str] = field(
        default_factory=dict[libcst.BaseExpression, str]
    )
    """Of these, the code of those that are tensors already."""
    messages: list[libcst.SimpleStatementLine] = field(
        default_factory=list[libcst.SimpleStatementLine]
    )
    """Statements that print."""
    edits: list[Replacement] = field(default_factory=list[Replacement])
    """What else is different in the function."""
    checks: list[str] = field(default_factory=list[str])
    """Statements before the call that raise where the function has no graph for it."""


def together(each: Sequence[Parts]) -> Parts:
    """What several edits of one function name."""
    values = dict.fromkeys(value for parts in each for value in parts.values)
    messages = dict.fromkeys(item for parts in each for item in parts.messages)
    return Parts(
        [*values],
        {value: text for parts in each for value, text in parts.tensors.items()},
        [*messages],
        [item for parts in each for item in parts.edits],
        [item for parts in each for item in parts.checks],
    )


def parameter_names(function: libcst.FunctionDef) -> list[str]:
    """Those by name."""
    listed = (*function.params.params, *function.params.kwonly_params)
    return [each.name.value for each in listed]


def parts_of(scope: Scope, function: libcst.FunctionDef, edit: Edit) -> Parts:
    """What an edit "computed_before" names.

    Raises:
        EditImpossible: it cannot be computed before the call.
    """
    kind, *rest = edit.code
    if kind == "call":
        return Parts([_called(scope, function, edit.line, rest[0])])
    if kind == "read":
        return Parts([_attribute_read(scope.source, function, edit.line)])
    if kind == "raise":
        return _raised(scope, function, edit.line)
    if kind == "neutral":
        return _neutral(scope.source, function, rest[0], rest[1])
    parts = _of_argument(scope, function, rest[0], flag=kind == "of" and "flag" in rest[1:])
    if kind == CHOICE:
        parts.checks.append(unexpected(scope.source, function, edit))
    return parts


def _of_argument(scope: Scope, function: libcst.FunctionDef, path: str, *, flag: bool) -> Parts:
    root, _, below = path.partition(".")
    _require_unchanged(scope.source, function, root)
    parts = Parts()
    for use in uses_in_body(scope.source, function, root):
        node = _at_path(scope.source, use, path)
        if node is None:
            if not below:
                raise EditImpossible(
                    f"`{path}` is used for more than can be computed before the call"
                )
            continue
        message = _message_with(scope, function, node)
        if message is None:
            parts.values.append(_largest(scope, function, node, flag=flag))
        elif message not in parts.messages:
            parts.messages.append(message)
    if not parts.values:
        raise EditImpossible(f"nothing that `{path}` decides can be computed before the call")
    return parts


def _message_with(
    scope: Scope, function: libcst.FunctionDef, node: libcst.BaseExpression
) -> libcst.SimpleStatementLine | None:
    """The statement that prints it, among literals only and in every call."""
    source = scope.source
    argument = source.parent(node)
    call = source.parent(argument)
    if not isinstance(argument, libcst.Arg) or not isinstance(call, libcst.Call):
        return None
    statement = source.parent(source.parent(call))
    is_print = isinstance(call.func, libcst.Name) and call.func.value == "print"
    if not is_print or not isinstance(statement, libcst.SimpleStatementLine):
        return None
    own = code_of(node)
    plain = all(is_literal(each.value) or code_of(each.value) == own for each in call.args)
    if len(statement.body) != 1 or not plain or not _is_outer(function, "print"):
        return None
    _require_always(source, function, call)
    _require_first(scope, function, call)
    return statement


def _neutral(source: Source, function: libcst.FunctionDef, path: str, shape: str) -> Parts:
    """A tensor or None: zeros or ones of the shape for None, and no branch on it."""
    _require_unchanged(source, function, path.partition(".")[0])
    uses = [
        node
        for use in uses_in_body(source, function, path.partition(".")[0])
        if (node := _at_path(source, use, path)) is not None
    ]
    for kind in (libcst.If, libcst.IfExp):
        for branch in source.below(function.body, kind):
            made = operation_of(branch, path)
            inside = list(source.below(branch, libcst.BaseExpression))
            if made is None or len(uses) != 2 or not all(each in inside for each in uses):
                continue
            tested = list(source.below(branch.test, libcst.BaseExpression))
            values = [each for each in uses if each not in tested]
            function_of = made.removesuffix("_like")
            code = f"torch.{function_of}({shape}) if {path} is None else {path}"
            edits = [Replacement(branch, _Taken(path))]
            return Parts(values, dict.fromkeys(values, code), edits=edits)
    raise EditImpossible(f"`{path}` is more than one operand where it is not None")


@dataclass(frozen=True)
class _Taken:
    """What a branch does where the value is not None."""

    path: str

    def __call__(
        self, node: libcst.If | libcst.IfExp
    ) -> libcst.BaseExpression | libcst.FlattenSentinel[libcst.CSTNode]:
        if isinstance(node, libcst.IfExp):
            is_none = code_of(node.test.with_changes(lpar=(), rpar=())).endswith("is None")
            return node.orelse if is_none else node.body
        first, *others = list[libcst.CSTNode](node.body.body)
        if isinstance(first, libcst.BaseSmallStatement):
            first = libcst.SimpleStatementLine([first])
        above = [*node.leading_lines, *getattr(first, "leading_lines", ())]
        return libcst.FlattenSentinel([first.with_changes(leading_lines=above), *others])


def _require_unchanged(source: Source, function: libcst.FunctionDef, name: str) -> None:
    """It is a parameter, and the same when the function is called as where it is read."""
    if name not in parameter_names(function):
        raise EditImpossible(f"`{name}` is not a parameter of `{function.name.value}`")
    if name in {*bound_in(source, function.body), *written_in(source, function)}:
        raise EditImpossible(f"`{name}` is changed in the function")


def uses_in_body(source: Source, function: libcst.FunctionDef, name: str) -> list[libcst.Name]:
    """Where a parameter is read."""
    return [
        each
        for each in uses_of(source, function, name)
        if any(block is function.body for block in source.around(each, libcst.IndentedBlock))
    ]


def _at_path(source: Source, use: libcst.Name, path: str) -> libcst.BaseExpression | None:
    node: libcst.BaseExpression = use
    while code_of(node) != path:
        parent = source.parent(node)
        if not isinstance(parent, libcst.Attribute) or not path.startswith(f"{code_of(parent)}"):
            return None
        node = parent
    return node


def _largest(
    scope: Scope, function: libcst.FunctionDef, read: libcst.BaseExpression, *, flag: bool
) -> libcst.BaseExpression:
    """The largest expression around a read that needs nothing else of the function."""
    node = read
    while (larger := _larger(scope.source, function, node)) is not None:
        node = larger
    if _decides(node) or (flag and node is read):
        if not is_test(scope.source, node):
            raise EditImpossible(f"`{code_of(node)}` decides more than a branch")
    elif isinstance(node, libcst.Subscript):
        require_arithmetic(scope, function, node)
    else:
        raise EditImpossible(
            f"`{code_of(read)}` is used for more than can be computed before the call"
        )
    raises = isinstance(node, libcst.Subscript) or matchers.findall(node, matchers.Call())
    if raises:
        _require_always(scope.source, function, node)
    return node


def _larger(
    source: Source, function: libcst.FunctionDef, node: libcst.BaseExpression
) -> libcst.BaseExpression | None:
    parent = source.parent(node)
    if isinstance(parent, libcst.Comparison) and len(parent.comparisons) == 1:
        compared = parent.comparisons[0].comparator
        constant = _is_constant(function, compared) or _is_function(source, function, compared)
        return parent if parent.left is node and constant else None
    if isinstance(parent, libcst.UnaryOperation) and isinstance(parent.operator, libcst.Not):
        return parent if _decides(node) else None
    if isinstance(parent, libcst.Attribute):
        call = source.parent(parent)
        if isinstance(call, libcst.Call) and call.func is parent:
            known = parent.attr.value in _OF_TEXT
            constant = all(_is_constant(function, each.value) for each in call.args)
            return call if known and constant else None
    if isinstance(parent, libcst.Index):
        subscript = source.parent(source.parent(parent))
        if isinstance(subscript, libcst.Subscript) and len(subscript.slice) == 1:
            table = subscript.value
            outer = isinstance(table, libcst.Name) and _is_outer(function, table.value)
            return subscript if outer and numbers_of(source, subscript) else None
    return None


def _decides(node: libcst.BaseExpression) -> bool:
    if isinstance(node, libcst.UnaryOperation):
        return isinstance(node.operator, libcst.Not)
    if isinstance(node, libcst.Call):
        return isinstance(node.func, libcst.Attribute) and node.func.attr.value in _DECIDING
    return isinstance(node, libcst.Comparison)


def is_test(source: Source, node: libcst.BaseExpression) -> bool:
    """Whether it decides a branch."""
    parent = source.parent(node)
    if isinstance(parent, libcst.UnaryOperation) and isinstance(parent.operator, libcst.Not):
        return is_test(source, parent)
    return isinstance(parent, (libcst.If, libcst.IfExp)) and parent.test is node


def _is_constant(function: libcst.FunctionDef, node: libcst.BaseExpression) -> bool:
    """A literal, or an attribute of what is not the function's own, as `Mode.SHARP`."""
    if isinstance(node, (libcst.Tuple, libcst.List, libcst.Set)):
        return all(_is_constant(function, each.value) for each in node.elements)
    root = dotted(node).partition(".")[0]
    return is_literal(node) or (isinstance(node, libcst.Attribute) and _is_outer(function, root))


def _is_function(source: Source, function: libcst.FunctionDef, node: libcst.BaseExpression) -> bool:
    """Whether it is a function of the module."""
    if not isinstance(node, libcst.Name) or not _is_outer(function, node.value):
        return False
    return is_function_of_module(source, node.value)


def is_literal(node: libcst.BaseExpression) -> bool:
    """Whether it is a constant of the text."""
    named = isinstance(node, libcst.Name) and node.value in ("None", "True", "False")
    return named or is_number(node) or isinstance(node, libcst.SimpleString)


def _is_outer(function: libcst.FunctionDef, name: str) -> bool:
    """Whether a name is not the function's own."""
    return bool(name) and name not in {*parameter_names(function), *_bound(function)}


def _bound(function: libcst.FunctionDef) -> set[str]:
    binding = [getattr(matchers, kind)() for kind in _BINDING]
    found = matchers.findall(function.body, matchers.OneOf(*binding))
    targets = [getattr(each, "target", None) or getattr(each, "name", None) for each in found]
    return {each for target in targets if target is not None for each in names_in(target)}


def _require_always(
    source: Source, function: libcst.FunctionDef, node: libcst.BaseExpression
) -> None:
    """What may raise an error, or draws a number, is computed in every call."""
    why = EditImpossible(f"`{code_of(node)}` is not computed in every call")
    child: libcst.CSTNode = node
    for parent in source.around(node, libcst.CSTNode):
        if parent is function:
            break
        conditional = isinstance(parent, (libcst.If, libcst.IfExp)) and parent.test is not child
        later = isinstance(parent, libcst.BooleanOperation) and parent.right is child
        repeated = isinstance(
            parent,
            (
                libcst.For,
                libcst.While,
                libcst.Try,
                libcst.Lambda,
                libcst.FunctionDef,
                libcst.BaseComp,
                libcst.Assert,
            ),
        )
        if conditional or later or repeated:
            raise why
        child = parent
    for kind in (libcst.Return, libcst.Raise):
        for leaving in source.below(function, kind):
            inside = any(each is leaving for each in source.around(node, kind))
            if source.position(leaving) < source.position(node) and not inside:
                raise why


_OF_SHAPES = frozenset(("size", "dim", "numel", "len", "isinstance", "is_floating_point"))


def _raised(scope: Scope, function: libcst.FunctionDef, line: int) -> Parts:
    """A statement of the function that raises an error for its arguments, made before the call."""
    source = scope.source
    found = [
        each
        for each in function.body.body
        if isinstance(each, libcst.If) and line in source.lines_of(each) and _only_raises(each)
    ]
    if len(found) != 1:
        raise EditImpossible(
            f"line {line} is not an error that the function raises for its arguments"
        )
    (check,) = found
    names = names_in(check)
    if own := names & {*bound_in(source, function.body)}:
        raise EditImpossible(f"`{min(own)}` is computed in the function")
    for name in names & {*parameter_names(function)}:
        _require_unchanged(source, function, name)
    for call in source.below(check.test, libcst.Call):
        if dotted(call.func).rpartition(".")[2] not in _OF_SHAPES:
            raise EditImpossible(f"`{code_of(call)}` may do more than read a shape")
    _require_first(scope, function, check.test)
    text = code_of(check.with_changes(leading_lines=())).strip()
    return Parts(edits=[Replacement(check, _no_more)], checks=[text])


def _no_more(_: libcst.CSTNode) -> libcst.RemovalSentinel:
    return libcst.RemoveFromParent()


def _only_raises(branch: libcst.If) -> bool:
    if branch.orelse is not None or len(branch.body.body) != 1:
        return False
    statement = branch.body.body[0]
    small = statement.body[0] if isinstance(statement, libcst.SimpleStatementLine) else statement
    return isinstance(small, libcst.Raise) and small.exc is not None and small.cause is None


def _called(
    scope: Scope, function: libcst.FunctionDef, line: int, name: str
) -> libcst.BaseExpression:
    """The call of an imported function, whose arguments are the same before the call."""
    source = scope.source
    calls = [
        each
        for each in source.below(function.body, libcst.Call)
        if line in source.lines_of(each) and dotted(each.func).rpartition(".")[2] == name
    ]
    if len(calls) != 1:
        raise EditImpossible(f"line {line} does not have exactly one call of {name}")
    call = calls[0]
    full = scope.imported_name(call.func) or ""
    if not full or full.startswith("torch."):
        raise EditImpossible(f"`{code_of(call.func)}` may do more than compute a number")
    root = full.partition(".")[0]
    same = [
        each
        for each in source.below(function.body, libcst.Call)
        if (scope.imported_name(each.func) or "").partition(".")[0] == root
    ]
    if len(same) != 1:
        raise EditImpossible(f"the function calls {root} more than once: their order would change")
    for argument in call.args:
        if argument.star or not _is_given(source, function, argument.value):
            raise EditImpossible(f"`{code_of(argument)}` is not known before the call")
    _require_always(source, function, call)
    _require_first(scope, function, call)
    require_arithmetic(scope, function, call)
    return call


def _is_given(source: Source, function: libcst.FunctionDef, node: libcst.BaseExpression) -> bool:
    """Whether an expression has before the call the value that it has in it."""
    if isinstance(node, (libcst.Tuple, libcst.List)):
        return all(_is_given(source, function, each.value) for each in node.elements)
    if isinstance(node, libcst.Name) and node.value in parameter_names(function):
        _require_unchanged(source, function, node.value)
        return True
    return _is_constant(function, node)


def _require_first(scope: Scope, function: libcst.FunctionDef, node: libcst.CSTNode) -> None:
    """What stands before it only computes values: nothing else happens earlier then."""
    inside = {id(each) for each in scope.source.around(node, libcst.CSTNode)}
    for statement in function.body.body:
        if id(statement) in inside:
            return
        if not isinstance(statement, libcst.SimpleStatementLine):
            raise EditImpossible("what stands before it may do more than compute a value")
        for small in statement.body:
            if isinstance(small, libcst.Expr) and isinstance(small.value, libcst.SimpleString):
                continue
            if not isinstance(small, libcst.Assign):
                raise EditImpossible("what stands before it may do more than compute a value")
            _require_pure(scope, small.value)


def _require_pure(scope: Scope, value: libcst.BaseExpression) -> None:
    if isinstance(value, libcst.IfExp):
        for each in (value.test, value.body, value.orelse):
            _require_pure(scope, each)
    else:
        scope.require_pure(value)


def _attribute_read(
    source: Source, function: libcst.FunctionDef, line: int
) -> libcst.BaseExpression:
    found = [
        each
        for each in source.below(function.body, libcst.Attribute)
        if line in source.lines_of(each)
        and isinstance(each.value, libcst.Name)
        and each.value.value in parameter_names(function)
        and not isinstance(source.parent(each), libcst.Attribute)
        and not _is_called(source, each)
    ]
    if len({code_of(each) for each in found}) != 1:
        raise EditImpossible(f"line {line} does not read one attribute of an argument")
    read, scope = found[0], scope_of(source)
    _require_unchanged(source, function, code_of(read.value))
    _require_always(source, function, read)
    _require_first(scope, function, read)
    require_arithmetic(scope, function, read)
    return read


def _is_called(source: Source, node: libcst.Attribute) -> bool:
    parent = source.parent(node)
    return isinstance(parent, libcst.Call) and parent.func is node


def numbers_of(source: Source, node: libcst.BaseExpression) -> str:
    """Whether numbers of the text are "float" or "int": those of a table that is looked up, or
    below an expression. Empty where the text does not show it."""
    if not isinstance(node, libcst.Subscript):
        return "float" * bool(matchers.findall(node, matchers.Float()))
    for statement in source.module.body:
        for small in statement.body if isinstance(statement, libcst.SimpleStatementLine) else ():
            if not isinstance(small, libcst.Assign) or len(small.targets) != 1:
                continue
            if code_of(small.targets[0].target) != code_of(node.value):
                continue
            elements = getattr(small.value, "elements", ())
            values = [getattr(each, "value", None) for each in elements]
            if not values or not all(each is not None and is_number(each) for each in values):
                return ""
            floats = any(matchers.findall(each, matchers.Float()) for each in values if each)
            return "float" if floats else "int"
    return ""
