"""State that grows while the program runs, at its largest size from the start: what `forward` finds
too small it replaces, and a replaced tensor of another size compiles everything again."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import libcst

from compilediag.fixes.codemods.edit import Edit, EditImpossible
from compilediag.fixes.codemods.tree import EditOfTree, Replacement, Source
from compilediag.fixes.codemods.variables import is_self, places

_FACTS = frozenset(("shape", "size", "dim", "ndim", "device", "dtype", "numel"))
_OF_PLACE = frozenset(("device",))


def largest_in_init(source: Source, edit: Edit) -> Iterator[EditOfTree]:
    """Kind "largest_in_init": `code` has the attribute and the largest size that it came to.

    Where a method with one parameter, a size, makes it as large, `__init__` calls that; where
    `__init__` makes it by the expression that makes it larger later, it has the size there. What
    makes it larger stays: for sizes that were never seen.
    """
    name, size = edit.code
    owner = _owner(source, edit.line, name)
    init = _method(owner, "__init__")
    writes = [each for each in _writes(source, owner, name) if init not in _around(source, each)]
    makers = {_around(source, each)[0] for each in writes}
    if init is None or len(makers) != 1 or len(writes) != 1:
        raise EditImpossible(f"{len(writes)} places of {owner.name.value} make {name} larger")
    maker = makers.pop()
    parameter = _only_parameter(maker)
    if parameter is not None and maker.name.value != "forward":
        if source.code(writes[0].value) != parameter:
            _require_slices(source, owner, name)
        me = init.params.params[0].name.value
        if any(source.below(init, libcst.Return)):
            raise EditImpossible(f"`__init__` of {owner.name.value} may end before its last line")
        last = init.body.body[-1]
        yield Replacement(last, _After(f"{me}.{maker.name.value}({size})"))
        return
    _require_slices(source, owner, name)
    yield _made_larger(source, init, name, writes[0].value, size)


def _owner(source: Source, line: int, name: str) -> libcst.ClassDef:
    for function in source.functions_at(line):
        for owner in list(source.around(function, libcst.ClassDef))[:1]:
            if any(_writes(source, owner, name)):
                return owner
    raise EditImpossible(f"line {line} is not inside a class that sets {name}")


def _writes(source: Source, owner: libcst.ClassDef, name: str) -> Iterator[libcst.Assign]:
    for each in source.below(owner, libcst.Assign):
        for target in each.targets:
            node = target.target
            if not isinstance(node, libcst.Attribute) or node.attr.value != name:
                continue
            if is_self(source, node):
                yield each


def _around(source: Source, node: libcst.CSTNode) -> list[libcst.FunctionDef]:
    return list(source.around(node, libcst.FunctionDef))


def _method(owner: libcst.ClassDef, name: str) -> libcst.FunctionDef | None:
    for each in owner.body.body:
        if isinstance(each, libcst.FunctionDef) and each.name.value == name:
            return each
    return None


def _only_parameter(method: libcst.FunctionDef) -> str | None:
    """Of a plain method that nothing decorates."""
    parameters = method.params
    names = [each.name.value for each in parameters.params]
    plain = not (parameters.kwonly_params or parameters.star_kwarg or method.decorators)
    return names[1] if len(names) == 2 and plain else None


def _require_slices(source: Source, owner: libcst.ClassDef, name: str) -> None:
    """A larger tensor gives the same only to who takes the part that is wanted.

    Raises:
        EditImpossible: something reads all of it.
    """
    for node in places(source, source.module, name):
        if not isinstance(node, libcst.Attribute):
            continue
        parent = source.parent(node)
        is_target = isinstance(parent, libcst.AssignTarget)
        if is_target or _is_fact(source, parent) or _is_cut(parent, node):
            continue
        at = source.lines_of(node).start
        raise EditImpossible(f"line {at}: `{source.code(node)}` is read as a whole")


def _is_fact(source: Source, parent: libcst.CSTNode) -> bool:
    """Its size or device, its length, or whether it is there."""
    if isinstance(parent, libcst.Attribute):
        return parent.attr.value in _FACTS
    if isinstance(parent, libcst.Arg):
        call = source.parent(parent)
        return isinstance(call, libcst.Call) and source.code(call.func) == "len"
    if isinstance(parent, libcst.Comparison):
        return all(
            isinstance(each.operator, libcst.Is | libcst.IsNot) for each in parent.comparisons
        )
    return False


def _is_cut(parent: libcst.CSTNode, node: libcst.CSTNode) -> bool:
    """`table[:length]`, `table[:, :length]`: each part is one up to an end, or all of it."""
    if not isinstance(parent, libcst.Subscript) or parent.value is not node:
        return False
    parts = [each.slice for each in parent.slice]
    cuts = [part for part in parts if isinstance(part, libcst.Slice)]
    ends = [part for part in cuts if part.upper is not None]
    return len(cuts) == len(parts) and len(ends) > 0 and not any(part.step for part in cuts)


def _made_larger(
    source: Source,
    init: libcst.FunctionDef,
    name: str,
    grown: libcst.BaseExpression,
    size: str,
) -> Replacement:
    """The size in the expression of `__init__`, which is otherwise the one that makes it larger."""
    first = _first_value(source, init, name)
    pairs = list(_differences(source, first, grown))
    if len(pairs) != 1 or not isinstance(pairs[0][0], libcst.Integer):
        raise EditImpossible(
            f"`__init__` makes {name} by `{source.code(first)}`, not as `{source.code(grown)}` does"
        )
    return Replacement(pairs[0][0], _Size(size))


def _first_value(source: Source, init: libcst.FunctionDef, name: str) -> libcst.BaseExpression:
    """What `__init__` sets it to, where no checkpoint has it."""
    found: list[libcst.BaseExpression] = []
    for call in source.below(init, libcst.Call):
        words = [source.code(each.value).strip("'\"") for each in call.args]
        if source.code(call.func).endswith(".register_buffer") and words[:1] == [name]:
            options = {each.keyword.value: each.value for each in call.args if each.keyword}
            persistent = options.get("persistent")
            if persistent is None or source.code(persistent) != "False":
                raise EditImpossible(f"{name} is in checkpoints, which have its size")
            found.append(call.args[1].value)
    owner = next(source.around(init, libcst.ClassDef))
    found += [each.value for each in _writes(source, owner, name) if init in _around(source, each)]
    if len(found) != 1:
        raise EditImpossible(f"`__init__` sets {name} {len(found)} times")
    return found[0]


def _differences(
    source: Source, first: libcst.CSTNode, second: libcst.CSTNode
) -> Iterator[tuple[libcst.CSTNode, libcst.CSTNode]]:
    """The smallest parts in which two expressions differ."""
    if source.code(first) == source.code(second):
        return
    ours, theirs = _parts(source, first), _parts(source, second)
    is_same_kind = type(first) is type(second) and len(ours) == len(theirs)
    if not ours or not is_same_kind or not theirs:
        yield first, second
        return
    for one, other in zip(ours, theirs, strict=True):
        yield from _differences(source, one, other)


def _parts(source: Source, node: libcst.CSTNode) -> list[libcst.CSTNode]:
    """What an expression is made of; without the device, which a module's buffers follow."""
    kinds = libcst.BaseExpression | libcst.Arg | libcst.BaseBinaryOp | libcst.BaseUnaryOp
    if isinstance(node, libcst.Arg):
        keyword = [] if node.keyword is None else [node.keyword]
        return [*keyword, node.value]
    if not isinstance(
        node,
        libcst.Call
        | libcst.BinaryOperation
        | libcst.UnaryOperation
        | libcst.Attribute
        | libcst.Tuple,
    ):
        return []
    children = [each for each in node.children if isinstance(each, kinds | libcst.Element)]
    return [each for each in children if not _is_device(each)]


def _is_device(node: libcst.CSTNode) -> bool:
    keyword = node.keyword if isinstance(node, libcst.Arg) else None
    return keyword is not None and keyword.value in _OF_PLACE


@dataclass(frozen=True)
class _Size:
    size: str

    def __call__(self, node: libcst.CSTNode) -> libcst.Integer:
        return libcst.Integer(self.size)


@dataclass(frozen=True)
class _After:
    """A statement below another."""

    code: str

    def __call__(self, node: libcst.BaseStatement) -> libcst.FlattenSentinel[libcst.BaseStatement]:
        return libcst.FlattenSentinel([node, libcst.parse_statement(self.code)])
