"""Numbers that a loop reads out of a tensor one by one, read all at once before it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import libcst
from libcst import matchers

from compilediag.fixes.codemods.edit import Edit, EditImpossible
from compilediag.fixes.codemods.names import fresh_name, names_in, parameters_of, written_in
from compilediag.fixes.codemods.purity import PURE, code_of, is_number, scope_of
from compilediag.fixes.codemods.reads import CAST, READ, Kept, is_target, read_tensor
from compilediag.fixes.codemods.tree import EditOfTree, Insertion, Replacement, Source


def read_at_once(source: Source, edit: Edit) -> Iterator[EditOfTree]:
    """Edit "read_at_once": what a loop reads one by one is read by one `.tolist()` before it."""
    reads = [
        call
        for call in source.below(source.module, libcst.Call)
        if matchers.matches(call, READ)
        and edit.line in source.lines_of(call)
        and isinstance(read_tensor(call), (libcst.Subscript, libcst.Name))
        and not any(
            matchers.matches(outer, CAST) and read_tensor(outer) is read_tensor(call)
            for outer in source.around(call, libcst.Call)
        )
    ]
    if not reads:
        raise EditImpossible(f"line {edit.line} reads no element of a tensor")
    done = set[int]()
    for read in reads:
        tensor = read_tensor(read)
        if isinstance(tensor, libcst.Name):
            for each in _of_loop_variable(source, read, tensor.value):
                if id(each.node) not in done:
                    done.add(id(each.node))
                    yield each
        else:
            yield from _of_element(source, read, tensor)


_Loop = libcst.For | libcst.CompFor


def _of_loop_variable(source: Source, read: libcst.CSTNode, name: str) -> Iterator[Replacement]:
    """`for value in tensor`, all uses of which read a number or go over it again."""
    loops = list(_loops_around(source, read))
    chain: list[tuple[_Loop, libcst.Name | libcst.BaseExpression]] = []
    for loop in loops:
        iterated = _iterated_by(loop, name)
        if iterated is None:
            continue
        chain.append((loop, iterated))
        if not isinstance(iterated, libcst.Name):
            break
        name = iterated.value
    if not chain:
        raise EditImpossible("the variable that is read is of no loop")
    for loop, _ in chain:
        yield from _reads_of(source, loop, len(chain), chain)
    outermost, tensor = chain[-1]
    if not isinstance(tensor, (libcst.Name, libcst.Attribute)):
        raise EditImpossible(f"`{code_of(tensor)}` is not a variable")
    _require_unchanged(source, outermost, tensor)
    flat = ".flatten()" if len(chain) == 1 else f".flatten({len(chain) - 1})"
    yield Replacement(tensor, Kept(f"{code_of(tensor)}{flat}.tolist()"))


def _loops_around(source: Source, node: libcst.CSTNode) -> Iterator[_Loop]:
    """Loops and loops of comprehensions in which a node is repeated, the innermost first."""
    while not isinstance(node, (libcst.FunctionDef, libcst.Lambda, libcst.Module)):
        inside, node = node, source.parent(node)
        if isinstance(node, libcst.For) and inside is node.body:
            yield node
        elif isinstance(node, libcst.BaseComp) and not isinstance(inside, libcst.CompFor):
            inner: libcst.CompFor | None = node.for_in
            loops: list[libcst.CompFor] = []
            while inner is not None:
                loops.append(inner)
                inner = inner.inner_for_in
            yield from reversed(loops)


def _iterated_by(loop: _Loop, name: str) -> libcst.BaseExpression | None:
    """What a variable goes over in a loop."""
    pairs: list[tuple[libcst.BaseExpression, libcst.BaseExpression]] = [(loop.target, loop.iter)]
    if matchers.matches(
        loop.iter, matchers.Call(func=matchers.Name("enumerate"), args=[matchers.Arg()])
    ):
        assert isinstance(loop.iter, libcst.Call)
        if isinstance(loop.target, libcst.Tuple) and len(loop.target.elements) == 2:
            pairs = [(loop.target.elements[1].value, loop.iter.args[0].value)]
    elif matchers.matches(loop.iter, matchers.Call(func=matchers.Name("zip"))):
        assert isinstance(loop.iter, libcst.Call)
        if isinstance(loop.target, libcst.Tuple):
            targets = [element.value for element in loop.target.elements]
            pairs = list(zip(targets, [each.value for each in loop.iter.args], strict=False))
    for target, iterated in pairs:
        if isinstance(target, libcst.Name) and target.value == name:
            return iterated
    return None


def _reads_of(
    source: Source,
    loop: _Loop,
    depth: int,
    chain: list[tuple[_Loop, Any]],
) -> Iterator[Replacement]:
    """All uses of a loop's variable: each reads it, or is what the next loop goes over."""
    at = next(i for i, (each, _) in enumerate(chain) if each is loop)
    name = _variable_of(loop, chain[at][1])
    within: libcst.CSTNode = loop if isinstance(loop, libcst.For) else source.parent(loop)
    while isinstance(within, libcst.CompFor):
        within = source.parent(within)
    function = next(source.around(loop, libcst.FunctionDef), source.module)
    for node in source.below(function, libcst.Name):
        if (
            node.value != name
            or is_target(source, node)
            or node in list(source.below(loop.target, libcst.Name))
        ):
            continue
        read = _read_by(source, node)
        inside = within in (*source.around(node, libcst.CSTNode),)
        next_one = at > 0 and chain[at - 1][1] is node
        if not inside or not (next_one or (at == 0 and read is not None)):
            line = source.lines_of(node).start
            raise EditImpossible(f"`{name}` is more than read in line {line}")
        if read is not None and not next_one:
            yield Replacement(read, Kept(_number_of(read, name)))


def _variable_of(loop: _Loop, iterated: libcst.BaseExpression) -> str:
    for name in names_in(loop.target):
        if _iterated_by(loop, name) is iterated:
            return name
    raise EditImpossible("the variable of the loop is not evident")


def _read_by(source: Source, node: libcst.Name) -> libcst.Call | None:
    for call in source.around(node, libcst.Call):
        if matchers.matches(call, READ) and read_tensor(call) is node:
            return call
    return None


def _number_of(read: libcst.Call, number: str) -> str:
    cast = matchers.matches(read, CAST)
    return f"{code_of(read.func)}({number})" if cast else number


def _of_element(
    source: Source, read: libcst.Call, element: libcst.BaseExpression
) -> Iterator[EditOfTree]:
    """`tensor[i, j].item()` in loops over the places."""
    tensor, places = _element(element)
    loops = [each for each in _loops_around(source, read) if isinstance(each, libcst.For)]
    counted = {name for loop in loops for name in _counters(loop)}
    if (
        not loops
        or not places
        or not all(
            is_number(place) or (isinstance(place, libcst.Name) and place.value in counted)
            for place in places
        )
    ):
        raise EditImpossible(f"`{code_of(element)}` is not an element indexed by a loop counter")
    function = next(source.around(read, libcst.FunctionDef), source.module)
    chosen = None
    for loop in loops:
        try:
            _require_unchanged(source, loop, tensor)
        except EditImpossible:
            if chosen is None:
                raise
            break
        chosen = loop
    assert chosen is not None, "there is a loop"
    _require_always_read(source, read, chosen, tensor)
    name = fresh_name(function, _named(tensor, len(places)))
    flat = ".flatten()" if len(places) == 1 else f".flatten({len(places) - 1})"
    yield Insertion(chosen, (f"{name} = {code_of(tensor)}{flat}.tolist()",))  # pyright: ignore[reportArgumentType]
    index = "".join(f"[{code_of(place)}]" for place in places)
    yield Replacement(read, Kept(_number_of(read, f"{name}{index}")))


def _named(tensor: libcst.Name | libcst.Attribute, places: int) -> str:
    """A variable for its numbers: each tensor and number of places has another."""
    owner, _, short = code_of(tensor).rpartition(".")
    shape = {1: "values", 2: "rows"}.get(places, f"values_by_{places}")
    return f"{short}_{shape}" + (f"_of_{owner.replace('.', '_')}" if owner else "")


def _element(
    node: libcst.BaseExpression,
) -> tuple[libcst.Name | libcst.Attribute, list[libcst.BaseExpression]]:
    places: list[libcst.BaseExpression] = []
    while isinstance(node, libcst.Subscript):
        indices = [each.slice for each in node.slice]
        if not all(isinstance(each, libcst.Index) for each in indices):
            raise EditImpossible(f"`{code_of(node)}` is more than an element")
        places[:0] = [each.value for each in indices if isinstance(each, libcst.Index)]
        node = node.value
    if not isinstance(node, (libcst.Name, libcst.Attribute)):
        raise EditImpossible(f"`{code_of(node)}` is not a variable")
    return node, places


def _counters(loop: libcst.For) -> Iterator[str]:
    """Variables of a loop that are whole numbers."""
    if matchers.matches(loop.iter, matchers.Call(func=matchers.Name("range"))):
        if isinstance(loop.target, libcst.Name):
            yield loop.target.value
    elif matchers.matches(loop.iter, matchers.Call(func=matchers.Name("enumerate"))):
        target = loop.target
        if isinstance(target, libcst.Tuple) and isinstance(target.elements[0].value, libcst.Name):
            yield target.elements[0].value.value


def _require_always_read(
    source: Source, read: libcst.CSTNode, loop: _Loop, tensor: libcst.BaseExpression
) -> None:
    """Raises where a condition in the loop is about the tensor: there may be none."""
    root = code_of(tensor)
    for kind in (libcst.If, libcst.IfExp, libcst.Try):
        for each in source.around(read, kind):
            if not any(outer is loop for outer in source.around(each, libcst.For)):
                continue
            if isinstance(each, libcst.Try) or root in code_of(each.test):
                raise EditImpossible(f"`{root}` is read under a condition")


def _require_unchanged(source: Source, loop: _Loop, tensor: libcst.BaseExpression) -> None:
    """Raises where a loop may change a tensor whose numbers are read before it."""
    root = code_of(tensor)
    name = root.partition(".")[0]
    function = next(source.around(loop, libcst.FunctionDef), None)
    own = {name} if function is None else _may_share(source, function, name)
    body: libcst.CSTNode = loop
    while isinstance(body, libcst.CompFor):
        body = source.parent(body)
    if name in _rebound(source, body) or own & set(written_in(source, body)):
        raise EditImpossible(f"the loop may change `{root}`")
    scope = scope_of(source)
    for call in source.below(body, libcst.Call):
        passed = {each for argument in call.args for each in names_in(argument.value)}
        if name not in passed or matchers.matches(call, READ):
            continue
        known = code_of(call.func) in ("enumerate", "zip", "len", "range")
        if (
            not known
            and scope.torch_function(call) not in PURE
            and any(
                isinstance(argument.value, libcst.Name) and argument.value.value == name
                for argument in call.args
            )
        ):
            raise EditImpossible(f"`{code_of(call)}` may change `{root}`")


def _may_share(source: Source, function: libcst.FunctionDef, name: str) -> set[str]:
    """Variables that may be, or be a part of, what another one is: the parameters, where it is
    one, and what is made from it."""
    shared = {name}
    if name in parameters_of(function):
        shared |= parameters_of(function)
    made_from = list[tuple[str, set[str]]]()
    for assignment in source.below(function, libcst.Assign):
        names = names_in(assignment.value)
        for target in assignment.targets:
            if not isinstance(target.target, (libcst.Subscript, libcst.Attribute)):
                made_from += [(each, names) for each in names_in(target.target)]
    shared |= {each for made, names in made_from if made == name for each in names}
    for _ in made_from:
        shared |= {each for each, names in made_from if names & shared}
    return shared


def _rebound(source: Source, node: libcst.CSTNode) -> set[str]:
    """Variables that get another value."""
    kinds = (libcst.AssignTarget, libcst.AugAssign, libcst.AnnAssign, libcst.For, libcst.NamedExpr)
    targets = [each.target for kind in kinds for each in source.below(node, kind)]
    plain = [each for each in targets if not isinstance(each, (libcst.Subscript, libcst.Attribute))]
    attributes = [code_of(each).partition(".")[0] for each in targets if _is_attribute(each)]
    return {*attributes, *(name for each in plain for name in names_in(each))}


def _is_attribute(node: libcst.CSTNode) -> bool:
    return isinstance(node, libcst.Attribute)
