"""A flag that compiled code branches on, as a tensor that `torch.where` chooses by: both sides are
computed then, in every call. Only where both are evidently tensors that nothing else depends on."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import libcst

from compilediag.fixes.codemods.edit import Edit, EditImpossible
from compilediag.fixes.codemods.numbers import as_number, declaration, in_place, undeclared
from compilediag.fixes.codemods.tensor_uses import (
    compiled_functions,
    is_compiled,
    name_of_function,
)
from compilediag.fixes.codemods.tree import EditOfTree, Replacement, Source
from compilediag.fixes.codemods.variables import Variable, variable_at

_SMOOTH = frozenset(
    [
        "detach",
        "mean",
        "sum",
        "abs",
        "square",
        "relu",
        "tanh",
        "sigmoid",
        "softmax",
        "float",
        "double",
        "neg",
        "sin",
        "cos",
        "clone",
    ]
)
"""Their gradient is finite wherever the value is: what is not chosen gets a gradient of zero."""

_WITHOUT_GRADIENT = _SMOOTH | frozenset(
    [
        "max",
        "min",
        "amax",
        "amin",
        "norm",
        "std",
        "var",
        "sqrt",
        "log",
        "exp",
        "clamp",
        "clamp_min",
        "flatten",
        "transpose",
    ]
)
_KEEP = (libcst.Add, libcst.Subtract, libcst.Multiply)
_ALL = (*_KEEP, libcst.Divide, libcst.Power)


def flag_as_tensor(source: Source, edit: Edit) -> Iterator[EditOfTree]:
    """Kind "flag_as_tensor": `code` has the name of a flag that the line reads (or of an
    attribute), and "bool"."""
    name, dtype = edit.code
    variable = variable_at(source, edit.line, name)
    if not _is_truth(variable.declared.value):
        raise EditImpossible(f"the first value of {name} is neither True nor False")
    compiled = compiled_functions(source, edit.line)
    yield declaration(source, variable, dtype)
    for write in variable.writes:
        yield in_place(source, write)
    for read in variable.reads:
        if is_compiled(source, read, compiled):
            yield _chosen(source, variable, read)
        else:
            yield as_number(read)
    yield from undeclared(source, variable)


def _is_truth(value: libcst.BaseExpression | None) -> bool:
    return isinstance(value, libcst.Name) and value.value in ("True", "False")


def _chosen(source: Source, variable: Variable, read: libcst.BaseExpression) -> Replacement:
    """The branch that a flag decides, without a branch."""
    test, parent = read, source.parent(read)
    negated = isinstance(parent, libcst.UnaryOperation) and isinstance(parent.operator, libcst.Not)
    if negated:
        test, parent = parent, source.parent(parent)
    flag = source.code(read)
    if isinstance(parent, libcst.IfExp) and parent.test is test:
        for side in (parent.body, parent.orelse):
            _require_tensor(source, side, {}, _SMOOTH)
        return Replacement(parent, _Expression(flag, negated))
    if not isinstance(parent, libcst.If) or parent.test is not test:
        raise _problem(source, read, "decides more than a branch of its own")
    if _is_elif(source, parent):
        raise _problem(source, read, "is one of several conditions")
    if parent.orelse is None:
        _require_alone(source, parent)
    else:
        _require_pair(source, parent)
    return Replacement(parent, _Statements(flag, negated, tuple(_temporaries(source, parent))))


def _is_elif(source: Source, node: libcst.If) -> bool:
    return isinstance(source.parent(node), libcst.If) or isinstance(node.orelse, libcst.If)


def _lines(source: Source, block: libcst.CSTNode) -> list[libcst.SimpleStatementLine]:
    lines = list(block.children) if isinstance(block, libcst.IndentedBlock) else []
    found = [each for each in lines if isinstance(each, libcst.SimpleStatementLine)]
    statements = [each for each in lines if isinstance(each, libcst.BaseStatement)]
    if len(found) != len(statements) or not found or any(len(line.body) != 1 for line in found):
        raise _problem(source, block, "is more than assignments")
    return found


def _require_alone(source: Source, node: libcst.If) -> None:
    """Every statement keeps what there was where the flag is not set."""
    known: dict[str, libcst.BaseExpression] = {}
    temporary = set(_temporaries(source, node))
    for line in _lines(source, node.body):
        small = line.body[0]
        if isinstance(small, libcst.Assign) and len(small.targets) == 1:
            target = small.targets[0].target
            if isinstance(target, libcst.Name) and target.value in temporary:
                _require_tensor(source, small.value, known, _SMOOTH)
                known[target.value] = small.value
            elif isinstance(target, libcst.Name):
                _require_before(source, node, target)
                _require_tensor(source, small.value, known, _SMOOTH)
            else:
                _require_item(source, target)
                _require_kept(source, small.value, known)
            continue
        copied = _copied(small)
        if copied is None:
            raise _problem(source, small, "is not known to be harmless where the flag is not set")
        _require_kept(source, copied, known)


def _require_pair(source: Source, node: libcst.If) -> None:
    """Both sides set one name, or return."""
    other = node.orelse
    sides = [_lines(source, node.body)]
    sides += [_lines(source, other.body)] if isinstance(other, libcst.Else) else []
    if [len(side) for side in sides] != [1, 1]:
        raise _problem(source, node.test, "decides more than one value")
    smalls = [side[0].body[0] for side in sides]
    targets = {_target_of(source, small) for small in smalls}
    if len(targets) != 1 or None in targets:
        raise _problem(source, node.test, "decides more than one value")
    for small in smalls:
        value = small.value if isinstance(small, libcst.Assign | libcst.Return) else None
        _require_tensor(source, value, {}, _SMOOTH)


def _target_of(source: Source, small: libcst.CSTNode) -> str | None:
    if isinstance(small, libcst.Return):
        return "return"
    if isinstance(small, libcst.Assign) and len(small.targets) == 1:
        target = small.targets[0].target
        return f"= {target.value}" if isinstance(target, libcst.Name) else None
    return None


def _copied(small: libcst.CSTNode) -> libcst.BaseExpression | None:
    """What a statement copies into a tensor."""
    call = small.value if isinstance(small, libcst.Expr) else None
    if isinstance(call, libcst.Call) and isinstance(call.func, libcst.Attribute):
        simple = isinstance(call.func.value, libcst.Name | libcst.Attribute)
        if call.func.attr.value == "copy_" and len(call.args) == 1 and simple:
            return call.args[0].value
    return None


def _temporaries(source: Source, node: libcst.If) -> Iterator[str]:
    """Names that only the statements below a condition use."""
    inside = set(source.below(node, libcst.Name))
    for name in list(inside):
        parent = source.parent(name)
        if isinstance(parent, libcst.AssignTarget):
            assignments = source.scope(name)[name.value]
            uses = {access.node for each in assignments for access in each.references}
            made = {getattr(each, "node", None) for each in assignments}
            if uses | made <= inside:
                yield name.value


def _require_before(source: Source, node: libcst.If, target: libcst.Name) -> None:
    """The name has a value where the flag is not set.

    Raises:
        EditImpossible: that is not evident.
    """
    function = next(source.around(node, libcst.FunctionDef), None)
    for assignment in source.scope(target)[target.value]:
        made = getattr(assignment, "node", None)
        if isinstance(made, libcst.Param):
            return
        if isinstance(made, libcst.Name) and source.position(made) < source.position(node):
            line = source.parent(source.parent(source.parent(made)))
            block = source.parent(line) if isinstance(line, libcst.SimpleStatementLine) else None
            if block is not None and function is not None and block is function.body:
                return
    raise _problem(source, target, "may have no value where the flag is not set")


def _require_item(source: Source, target: libcst.BaseExpression) -> None:
    """`latest["mean"]` of a dict that is made with that key."""
    if isinstance(target, libcst.Subscript) and isinstance(target.value, libcst.Name):
        keys = source.code(target).partition("[")[2].rstrip("]")
        for assignment in source.scope(target.value)[target.value.value]:
            name = getattr(assignment, "node", None)
            made = source.parent(source.parent(name)) if isinstance(name, libcst.Name) else None
            value = made.value if isinstance(made, libcst.Assign) else None
            elements = value.elements if isinstance(value, libcst.Dict) else ()
            if keys in [source.code(e.key) for e in elements if isinstance(e, libcst.DictElement)]:
                return
    raise _problem(source, target, "may not be there where the flag is not set")


def _require_kept(
    source: Source, value: libcst.BaseExpression, known: dict[str, libcst.BaseExpression]
) -> None:
    """What is kept beyond the call holds no gradient: it would be kept with it, call after call."""
    _require_tensor(source, value, known, _WITHOUT_GRADIENT)
    if not _is_detached(source, value, known):
        raise _problem(source, value, "is kept with its gradient")


def _is_detached(
    source: Source, node: libcst.BaseExpression, known: dict[str, libcst.BaseExpression]
) -> bool:
    if isinstance(node, libcst.Integer | libcst.Float):
        return True
    if isinstance(node, libcst.BinaryOperation):
        return all(_is_detached(source, each, known) for each in (node.left, node.right))
    if isinstance(node, libcst.UnaryOperation):
        return _is_detached(source, node.expression, known)
    if isinstance(node, libcst.Name):
        return node.value in known and _is_detached(source, known[node.value], known)
    if isinstance(node, libcst.Call):
        if name_of_function(node.func) == "detach":
            return True
        if source.code(node.func).startswith("torch."):
            return all(_is_detached(source, each.value, known) for each in node.args)
        function = node.func
        return isinstance(function, libcst.Attribute) and _is_detached(
            source, function.value, known
        )
    return False


def _require_tensor(
    source: Source,
    node: libcst.BaseExpression | None,
    known: dict[str, libcst.BaseExpression],
    functions: frozenset[str],
) -> None:
    """An expression that may be computed where its value is not wanted.

    Raises:
        EditImpossible: it may do something else, or fail.
    """
    if isinstance(node, libcst.Name | libcst.Integer | libcst.Float):
        if isinstance(node, libcst.Name) and node.value in ("None", "True", "False"):
            raise _problem(source, node, "is not a tensor")
        return
    if isinstance(node, libcst.BinaryOperation):
        kinds = _KEEP if functions is _SMOOTH else _ALL
        by_number = isinstance(node.operator, libcst.Divide | libcst.Power) and isinstance(
            node.right, libcst.Integer | libcst.Float
        )
        if isinstance(node.operator, kinds) or by_number:
            _require_tensor(source, node.left, known, functions)
            _require_tensor(source, node.right, known, functions)
            return
    elif isinstance(node, libcst.UnaryOperation) and isinstance(node.operator, libcst.Minus):
        _require_tensor(source, node.expression, known, functions)
        return
    elif isinstance(node, libcst.Attribute):
        return
    elif isinstance(node, libcst.Call) and name_of_function(node.func) in functions:
        _require_arguments(source, node, known, functions)
        return
    shown = node if node is not None else source.module
    raise _problem(source, shown, "may do more than compute a tensor, or fail")


def _require_arguments(
    source: Source,
    call: libcst.Call,
    known: dict[str, libcst.BaseExpression],
    functions: frozenset[str],
) -> None:
    function = call.func
    module = source.code(function).rpartition(".")[0]
    if not isinstance(function, libcst.Attribute):
        raise _problem(source, call, "may be a function of the program's own")
    if module not in ("torch", "torch.linalg", "F", "functional"):
        if "self" in module.split(".")[:1]:
            raise _problem(source, call, "may be a function of the program's own")
        _require_tensor(source, function.value, known, functions)
    for argument in call.args:
        if argument.star:
            raise _problem(source, call, "takes arguments that are not known")
        _require_tensor(source, argument.value, known, functions)


def _problem(source: Source, node: libcst.CSTNode, why: str) -> EditImpossible:
    line = source.lines_of(node).start
    shown = source.code(node).strip().splitlines()[0]
    return EditImpossible(f"line {line}: `{shown}` {why}")


def _where(
    flag: str, negated: bool, chosen: libcst.BaseExpression, other: libcst.BaseExpression
) -> libcst.Call:
    sides = (other, chosen) if negated else (chosen, other)
    condition = libcst.parse_expression(flag)
    function = libcst.parse_expression("torch.where")
    bare = [side.with_changes(lpar=(), rpar=()) for side in sides]
    return libcst.Call(function, [libcst.Arg(each) for each in (condition, *bare)])


@dataclass(frozen=True)
class _Expression:
    flag: str
    negated: bool

    def __call__(self, node: libcst.IfExp) -> libcst.Call:
        return _where(self.flag, self.negated, node.body, node.orelse)


@dataclass(frozen=True)
class _Statements:
    flag: str
    negated: bool
    temporaries: tuple[str, ...]

    def __call__(self, node: libcst.If) -> libcst.FlattenSentinel[libcst.BaseStatement]:
        lines = _lines_of(node.body)
        if isinstance(node.orelse, libcst.Else):
            other = _lines_of(node.orelse.body)[0].body[0]
            made = [self._one(lines[0], other)]
        else:
            made = [self._one(line, None) for line in lines]
        above = (*node.leading_lines, *made[0].leading_lines)
        return libcst.FlattenSentinel([made[0].with_changes(leading_lines=above), *made[1:]])

    def _one(
        self, line: libcst.SimpleStatementLine, other: libcst.BaseSmallStatement | None
    ) -> libcst.SimpleStatementLine:
        small = line.body[0]
        copied = _copied(small)
        if copied is not None and isinstance(small, libcst.Expr):
            call = libcst.ensure_type(small.value, libcst.Call)
            into = libcst.ensure_type(call.func, libcst.Attribute).value
            chosen = _where(self.flag, self.negated, copied, into)
            changed = small.with_changes(value=call.with_changes(args=[libcst.Arg(chosen)]))
            return line.with_changes(body=[changed])
        if not isinstance(small, libcst.Assign | libcst.Return) or small.value is None:
            return line
        if isinstance(other, libcst.Assign | libcst.Return) and other.value is not None:
            kept: libcst.BaseExpression = other.value
        else:
            target = libcst.ensure_type(small, libcst.Assign).targets[0].target
            if isinstance(target, libcst.Name) and target.value in self.temporaries:
                return line
            kept = libcst.ensure_type(target, libcst.BaseExpression)
        value = _where(self.flag, self.negated, small.value, kept)
        return line.with_changes(body=[small.with_changes(value=value)])


def _lines_of(block: libcst.BaseSuite) -> Sequence[libcst.SimpleStatementLine]:
    return [each for each in block.body if isinstance(each, libcst.SimpleStatementLine)]
