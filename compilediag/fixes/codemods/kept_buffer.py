"""A batch that is packed row by row into a new tensor in every step, packed into one that is kept:
rows are written as before, and only what no row covers is filled."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import libcst
from libcst import matchers

from compilediag.fixes.codemods.edit import Edit, EditImpossible
from compilediag.fixes.codemods.kept import require_not_kept
from compilediag.fixes.codemods.names import bound_in, fresh_name, uses_of
from compilediag.fixes.codemods.placed import replaced
from compilediag.fixes.codemods.purity import Scope, code_of, is_number, scope_of
from compilediag.fixes.codemods.tree import EditOfTree, Insertion, Replacement, Source

_SIZES = ("len", "int", "min", "max", "size", "numel")
_LEAVING = (libcst.Break, libcst.Continue, libcst.Return)
_Repeated = libcst.For | libcst.While | libcst.FunctionDef


def kept_buffer(source: Source, edit: Edit) -> Iterator[EditOfTree]:
    """Edit "kept_buffer": what the statement of the line fills, and a loop behind it overwrites, is
    one tensor for all steps. `code` is the name of its variable."""
    statement, name = source.statement_at(edit.line), edit.code[0]
    scope = scope_of(source)
    function = next(iter(source.functions_at(edit.line)), None)
    whole = function or source.module
    fill = _fill(scope, statement, name)
    if list(bound_in(source, whole)).count(name) != 1:
        raise EditImpossible(f"`{name}` is assigned more than once")
    packing = [*_packing(source, statement, fill)]
    require_not_kept(scope, whole, name)
    first = _first_repeated(source, statement)
    kept, size = fresh_name(source.module, f"kept_{name}"), fresh_name(whole, "size")
    checks = (f"{kept} is None", f"{kept}.shape != {size}", *(f"{kept}.{c}" for c in fill.checks))
    yield Insertion(first, (f"{kept} = None",))
    yield replaced(
        statement,
        (
            *((f"global {kept}",) if isinstance(first, libcst.FunctionDef) else ()),
            f"{size} = {fill.size}",
            f"if {' or '.join(checks)}:\n    {kept} = {fill.function}({size}{fill.options})\n",
            f"{name} = {kept}",
        ),
    )
    yield from packing


@dataclass(frozen=True, slots=True)
class _Fill:
    """A call that makes a tensor of one value, as text."""

    name: str
    function: str
    size: str
    """A tuple."""
    rows: str
    """The first dimension; empty where the text does not show it."""
    options: str
    value: str
    checks: tuple[str, ...]
    """What of the tensor must be as it is, besides its size, "dtype != row.dtype"."""


def _fill(scope: Scope, statement: libcst.SimpleStatementLine, name: str) -> _Fill:
    assigned = matchers.SimpleStatementLine(
        body=[
            matchers.Assign(
                targets=[matchers.AssignTarget(matchers.Name(name))], value=matchers.Call()
            )
        ]
    )
    if not matchers.matches(statement, assigned):
        raise EditImpossible(f"`{name}` is not assigned by a statement of its own")
    call = libcst.ensure_type(
        libcst.ensure_type(statement.body[0], libcst.Assign).value, libcst.Call
    )
    placed = [each.value for each in call.args if each.keyword is None and not each.star]
    named = {each.keyword.value: each.value for each in call.args if each.keyword is not None}
    full, kind = scope.imported_name(call.func), code_of(call.func).rpartition(".")[2]
    if len(placed) + len(named) != len(call.args) or named.keys() - {
        "size", "fill_value", "dtype", "device", "pin_memory"
    }:  # fmt: skip
        raise EditImpossible(f"`{code_of(call)}` has other arguments than a size and a dtype")
    is_full = kind in ("full", "new_full")
    value = named.pop("fill_value", placed.pop() if is_full and len(placed) > 1 else None)
    shape = [named.pop("size")] if "size" in named else placed
    value_text = code_of(value) if value is not None else "0"
    if full in ("torch.zeros", "torch.full"):
        checks = [_check(scope, key, named[key]) for key in ("dtype", "device") if key in named]
    elif kind in ("new_zeros", "new_full") and scope.is_method(call) and not named:
        assert isinstance(call.func, libcst.Attribute), "a method"
        owner = code_of(call.func.value)
        checks = [f"dtype != {owner}.dtype", f"device != {owner}.device"]
    else:
        raise EditImpossible(f"`{code_of(call.func)}` is not edited")
    options = [value_text] * is_full + [f"{key}={code_of(each)}" for key, each in named.items()]
    size, rows = _size(shape)
    return _Fill(
        name,
        code_of(call.func),
        size,
        rows,
        "".join(f", {each}" for each in options),
        value_text,
        tuple(each for each in checks if each),
    )


def _size(shape: Sequence[libcst.BaseExpression]) -> tuple[str, str]:
    """The text of a size as a tuple, and that of its first dimension."""
    if len(shape) == 1 and isinstance(shape[0], (libcst.Tuple, libcst.List)):
        shape = [each.value for each in shape[0].elements]
    elif len(shape) == 1:
        return f"tuple({code_of(shape[0])})", ""
    if len(shape) < 2:
        raise EditImpossible("the tensor has no rows")
    return f"({', '.join(map(code_of, shape))})", code_of(shape[0])


def _check(scope: Scope, key: str, value: libcst.BaseExpression) -> str:
    if isinstance(value, libcst.SimpleString) or scope.imported_name(value) is not None:
        return ""
    return (
        f"{key} != {code_of(value)}"
        if key == "dtype"
        else f"device != torch.device({code_of(value)})"
    )


def _first_repeated(source: Source, statement: libcst.SimpleStatementLine) -> _Repeated:
    """The outermost loop around a statement in its function; the function where there is none."""
    found: list[_Repeated] = []
    for each in source.around(statement, libcst.CSTNode):
        if isinstance(each, libcst.FunctionDef):
            found = found or [each]
            break
        if isinstance(each, (libcst.For, libcst.While)):
            found.append(each)
    if not found:
        raise EditImpossible("it is not made again and again")
    first = found[-1]
    if isinstance(first, libcst.FunctionDef):
        outer = (libcst.FunctionDef, libcst.ClassDef)
        around = [each for kind in outer for each in source.around(first, kind)]
        if around or first.asynchronous:
            raise EditImpossible(f"`{first.name.value}` is not a function of the module")
    return first


def _packing(
    source: Source, statement: libcst.SimpleStatementLine, fill: _Fill
) -> Iterator[EditOfTree]:
    """What is filled where no row covers the tensor."""
    block = source.parent(statement)
    behind = [*block.children][[*block.children].index(statement) + 1 :]
    loop = next((each for each in behind if _names(source, each, fill.name)), None)
    if not isinstance(loop, libcst.For) or not isinstance(loop.body, libcst.IndentedBlock):
        raise EditImpossible(f"no loop behind it writes the rows of `{fill.name}`")
    stores = [each for each in loop.body.body if _names(source, each, fill.name)]
    store = stores[0]
    leaves = any(True for kind in _LEAVING for _ in source.below(loop, kind))
    if len(stores) != 1 or len(_names(source, loop, fill.name)) != 1 or leaves:
        raise EditImpossible(f"the loop does more with `{fill.name}` than write a row of it")
    if not isinstance(store, libcst.SimpleStatementLine):
        raise EditImpossible(f"`{fill.name}` is written where a condition holds")
    index = [each.slice for each in _stored(source, store, fill.name).slice]
    if (end := _running_end(source, block, loop, store, index)) is not None:
        yield Replacement(loop, _Followed(f"{fill.name}[{end}:] = {fill.value}"))
    else:
        place, count = _rows_of(loop)
        if not isinstance(index[0], libcst.Index) or code_of(index[0].value) != place:
            raise EditImpossible(f"the loop does not write row after row of `{fill.name}`")
        if place in {*bound_in(source, loop.body)}:
            raise EditImpossible(f"`{place}` is changed in the loop")
        if count != fill.rows:
            yield Insertion(loop, (f"{fill.name}[{count}:] = {fill.value}",))
    if tails := [*_tails(fill, index)]:
        yield Insertion(store, tuple(tails))


def _names(source: Source, node: libcst.CSTNode, name: str) -> list[libcst.Name]:
    return uses_of(source, node, name)


def _stored(source: Source, store: libcst.SimpleStatementLine, name: str) -> libcst.Subscript:
    """`name[…]` in `name[…] = row` or `name[…].copy_(row)`."""
    target = matchers.Subscript(value=matchers.Name(name))
    copied = matchers.Call(func=matchers.Attribute(target, matchers.Name("copy_")))
    one = matchers.Assign(targets=[matchers.AssignTarget(target)]) | matchers.Expr(copied)
    if not matchers.matches(store, matchers.SimpleStatementLine(body=[one])):
        raise EditImpossible(f"`{code_of(store).strip()}` does not write a row")
    return next(source.below(store, libcst.Subscript))


def _rows_of(loop: libcst.For) -> tuple[str, str]:
    """The variable with the number of the row, and how many rows a loop writes."""
    target, iterated = loop.target, loop.iter
    if not isinstance(iterated, libcst.Call) or len(iterated.args) != 1:
        raise EditImpossible("the loop has no number of the row")
    over, function = iterated.args[0].value, code_of(iterated.func)
    if function == "range" and isinstance(target, libcst.Name) and _is_simple(over):
        return target.value, code_of(over)
    if function == "enumerate" and isinstance(target, libcst.Tuple):
        parts = [over]
        if isinstance(over, libcst.Call) and code_of(over.func) == "zip":
            parts = [each.value for each in over.args]
        if all(map(_is_plain, parts)):
            lengths = ", ".join(f"len({code_of(each)})" for each in parts)
            place = code_of(target.elements[0].value)
            return place, f"min({lengths})" if len(parts) > 1 else lengths
    raise EditImpossible("how many rows the loop writes is not known before it")


def _running_end(
    source: Source,
    block: libcst.CSTNode,
    loop: libcst.For,
    store: libcst.SimpleStatementLine,
    index: Sequence[libcst.BaseSlice],
) -> str | None:
    """The variable with the end of what is written, where rows stand one behind the other:
    `batch[end : end + n] = row`, and `end += n` behind it."""
    first = index[0]
    if not isinstance(first, libcst.Slice) or not isinstance(first.lower, libcst.Name):
        return None
    end, upper = first.lower.value, first.upper
    grown = [each for each in source.below(loop, libcst.AugAssign) if code_of(each.target) == end]
    zero = matchers.SimpleStatementLine(
        body=[matchers.Assign([matchers.AssignTarget(matchers.Name(end))], matchers.Integer("0"))]
    )
    before = [*block.children][: [*block.children].index(loop)]
    if (
        not any(matchers.matches(each, zero) for each in before)
        or len(grown) != 1
        or list(bound_in(source, loop)).count(end) != 1
        or source.position(grown[0]) < source.position(store)
        or source.parent(source.parent(grown[0])) is not loop.body
        or not isinstance(upper, libcst.BinaryOperation)
        or code_of(upper) != f"{end} + {code_of(grown[0].value)}"
    ):
        raise EditImpossible(f"where `{end}` stands after the loop is not known")
    return end


def _tails(fill: _Fill, index: Sequence[libcst.BaseSlice]) -> Iterator[str]:
    """The statements that fill what a store leaves of its rows."""
    texts = [code_of(each) for each in index]
    for at, each in enumerate(index[1:], start=1):
        if not isinstance(each, libcst.Slice):
            if isinstance(each, libcst.Index) and isinstance(each.value, libcst.Ellipsis):
                continue
            raise EditImpossible(f"`{fill.name}[{', '.join(texts)}]` is not all of a row")
        if each.step is not None or not all(_is_simple(b) for b in (each.lower, each.upper) if b):
            raise EditImpossible(f"`{code_of(each)}` may do more than compute a size")
        before = "".join(f"{text}, " for text in texts[:at])
        if each.lower is not None:
            yield f"{fill.name}[{before}: {code_of(each.lower)}] = {fill.value}"
        if each.upper is not None:
            yield f"{fill.name}[{before}{code_of(each.upper)} :] = {fill.value}"


def _is_plain(node: libcst.CSTNode) -> bool:
    return isinstance(node, libcst.Name) or (
        isinstance(node, libcst.Attribute) and _is_plain(node.value)
    )


def _is_simple(node: libcst.CSTNode) -> bool:
    """Whether reading it twice gives one size, and does nothing else."""
    if isinstance(node, libcst.BinaryOperation):
        return _is_simple(node.left) and _is_simple(node.right)
    if isinstance(node, libcst.UnaryOperation):
        return _is_simple(node.expression)
    if isinstance(node, libcst.Subscript):
        parts = [each.slice for each in node.slice]
        inner = [each.value for each in parts if isinstance(each, libcst.Index)]
        return _is_simple(node.value) and len(inner) == len(parts) and all(map(_is_simple, inner))
    if isinstance(node, libcst.Call):
        owner = [node.func.value] if isinstance(node.func, libcst.Attribute) else []
        known = code_of(node.func).rpartition(".")[2] in _SIZES
        return known and all(map(_is_simple, (*owner, *(each.value for each in node.args))))
    return _is_plain(node) or is_number(node)


@dataclass(frozen=True, slots=True)
class _Followed:
    code: str

    def __call__(self, loop: libcst.For) -> libcst.FlattenSentinel[libcst.BaseStatement]:
        return libcst.FlattenSentinel([loop, libcst.parse_statement(self.code)])
