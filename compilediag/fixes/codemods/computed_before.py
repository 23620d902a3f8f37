"""What a compiled function computes without tensors, computed before the call instead and passed as
a tensor: a decorator outside of `torch.compile` does it. Branches that are decided by it become
`torch.where`."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import libcst
from libcst import matchers

from compilediag.fixes.codemods.branches import choose, chosen_expression, require_arithmetic
from compilediag.fixes.codemods.contexts import Called, is_compile, only_compile
from compilediag.fixes.codemods.edit import Edit, EditImpossible
from compilediag.fixes.codemods.names import bound_in, fresh_name, names_in, uses_of, written_in
from compilediag.fixes.codemods.placed import Once
from compilediag.fixes.codemods.purity import Scope, code_of, dotted, is_number, scope_of
from compilediag.fixes.codemods.tree import EditOfTree, Insertion, Replacement, Source, with_edits

_DECIDING = frozenset("startswith endswith isdigit isalpha isupper islower".split())
_OF_TEXT = _DECIDING | frozenset("lower upper strip lstrip rstrip casefold removeprefix".split())
_LONGEST_LINE = 88


def computed_before(source: Source, edit: Edit) -> Iterator[EditOfTree]:
    """Edit "computed_before": `code` has what is computed before the call of the function of the
    line.

    ("of", "mode") or ("of", "request.mode"): all that the function reads of an argument that is no
    tensor, compared with constants, asked by a method of text, or looked up in a table of numbers;
    with "flag" behind it, an argument that is True or False. ("call", "crc32"): the call of that
    function in the line. ("read",): the one attribute of an argument that the line reads.
    """
    scope = scope_of(source)
    function = _function_at(source, edit.line)
    _require_simple(function)
    first = is_compile(scope, function)
    if not first and source.parent(function) is not source.module:
        raise EditImpossible(f"`{function.name.value}` is not compiled where it is defined")
    found = list(_expressions(scope, function, edit))
    computed = _named(scope, function, found)
    name = fresh_name(source.module, f"{function.name.value}_with_tensors")
    dropped = {each for each in _parameters(function) if _is_used_up(source, function, each, found)}
    decorator = _decorator(function, name, computed, dropped)
    changed = _changed(source, function, computed, dropped)
    if first:
        apart = [libcst.EmptyLine(indent=False)] * 2
        own = libcst.Decorator(libcst.Name(name), leading_lines=apart)
        changed = changed.with_changes(decorators=[own, *changed.decorators])
    else:
        yield Replacement(only_compile(scope, function), Called(name))
    yield Insertion(function, (decorator,))
    yield Replacement(function, Once(function, changed, code_of(changed)))


@dataclass(frozen=True, slots=True)
class _Computed:
    """An expression that is computed before the call."""

    nodes: tuple[libcst.BaseExpression, ...]
    name: str
    """Of the parameter that gets it."""
    text: str
    """The tensor, as the caller makes it."""
    decides: bool
    """Whether it is true or false."""


def _function_at(source: Source, line: int) -> libcst.FunctionDef:
    """The innermost function with a line, that of a decorator of it too."""
    found = [
        each
        for each in source.below(source.module, libcst.FunctionDef)
        if any(line in source.lines_of(part) for part in (each, *each.decorators))
    ]
    if not found:
        raise EditImpossible(f"line {line} is in no function")
    return found[-1]


def _require_simple(function: libcst.FunctionDef) -> None:
    """Parameters by name, with constants for defaults: the decorator has the same ones."""
    parameters = function.params
    starred = (parameters.star_arg, parameters.star_kwarg)
    if parameters.posonly_params or any(isinstance(each, libcst.Param) for each in starred):
        raise EditImpossible(f"`{function.name.value}` takes more than named arguments")
    if function.asynchronous or matchers.findall(function, matchers.Yield()):
        raise EditImpossible(f"`{function.name.value}` is no plain function")
    for each in (*parameters.params, *parameters.kwonly_params):
        if each.default is not None and not _is_literal(each.default):
            raise EditImpossible(f"the default of `{each.name.value}` is no constant")


def _parameters(function: libcst.FunctionDef) -> list[str]:
    listed = (*function.params.params, *function.params.kwonly_params)
    return [each.name.value for each in listed]


def _expressions(
    scope: Scope, function: libcst.FunctionDef, edit: Edit
) -> Iterator[libcst.BaseExpression]:
    kind, *rest = edit.code
    if kind == "call":
        yield _called(scope, function, edit.line, rest[0])
    elif kind == "read":
        yield _attribute_read(scope.source, function, edit.line)
    else:
        yield from _of_argument(scope, function, rest[0], flag="flag" in rest[1:])


def _of_argument(
    scope: Scope, function: libcst.FunctionDef, path: str, *, flag: bool
) -> Iterator[libcst.BaseExpression]:
    root, _, below = path.partition(".")
    _require_unchanged(scope.source, function, root)
    found = 0
    for use in _uses(scope.source, function, root):
        node = _at_path(scope.source, use, path)
        if node is None:
            if not below:
                raise EditImpossible(f"`{path}` is used for more than can be computed before")
            continue
        found += 1
        yield _largest(scope, function, node, flag=flag)
    if not found:
        raise EditImpossible(f"`{function.name.value}` does not read `{path}`")


def _require_unchanged(source: Source, function: libcst.FunctionDef, name: str) -> None:
    """It is a parameter, and the same when the function is called as where it is read."""
    if name not in _parameters(function):
        raise EditImpossible(f"`{name}` is no parameter of `{function.name.value}`")
    if name in {*bound_in(source, function.body), *written_in(source, function)}:
        raise EditImpossible(f"`{name}` is changed in the function")


def _uses(source: Source, function: libcst.FunctionDef, name: str) -> list[libcst.Name]:
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
        if not _is_test(scope.source, node):
            raise EditImpossible(f"`{code_of(node)}` decides more than a branch")
    elif isinstance(node, libcst.Subscript):
        require_arithmetic(scope, function, node)
    else:
        raise EditImpossible(f"`{code_of(read)}` is used for more than can be computed before")
    raises = isinstance(node, libcst.Subscript) or matchers.findall(node, matchers.Call())
    if raises:
        _require_always(scope.source, function, node)
    return node


def _larger(
    source: Source, function: libcst.FunctionDef, node: libcst.BaseExpression
) -> libcst.BaseExpression | None:
    parent = source.parent(node)
    if isinstance(parent, libcst.Comparison) and len(parent.comparisons) == 1:
        constant = _is_constant(function, parent.comparisons[0].comparator)
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
            return subscript if outer and _numbers_of(source, subscript) else None
    return None


def _decides(node: libcst.BaseExpression) -> bool:
    if isinstance(node, libcst.UnaryOperation):
        return isinstance(node.operator, libcst.Not)
    if isinstance(node, libcst.Call):
        return isinstance(node.func, libcst.Attribute) and node.func.attr.value in _DECIDING
    return isinstance(node, libcst.Comparison)


def _is_test(source: Source, node: libcst.BaseExpression) -> bool:
    parent = source.parent(node)
    if isinstance(parent, libcst.UnaryOperation) and isinstance(parent.operator, libcst.Not):
        return _is_test(source, parent)
    return isinstance(parent, (libcst.If, libcst.IfExp)) and parent.test is node


def _is_constant(function: libcst.FunctionDef, node: libcst.BaseExpression) -> bool:
    """A literal, or an attribute of what is not the function's own, as `Mode.SHARP`."""
    if isinstance(node, (libcst.Tuple, libcst.List, libcst.Set)):
        return all(_is_constant(function, each.value) for each in node.elements)
    root = dotted(node).partition(".")[0]
    return _is_literal(node) or (isinstance(node, libcst.Attribute) and _is_outer(function, root))


def _is_literal(node: libcst.BaseExpression) -> bool:
    named = isinstance(node, libcst.Name) and node.value in ("None", "True", "False")
    return named or is_number(node) or isinstance(node, libcst.SimpleString)


def _is_outer(function: libcst.FunctionDef, name: str) -> bool:
    """Whether a name is not the function's own."""
    return bool(name) and name not in {*_parameters(function), *_bound(function)}


def _bound(function: libcst.FunctionDef) -> set[str]:
    targets = matchers.findall(function.body, matchers.AssignTarget())
    return {each for target in targets for each in names_in(target)}


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
        raise EditImpossible(f"line {line} has not one call of {name}")
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
    if isinstance(node, libcst.Name) and node.value in _parameters(function):
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
            scope.require_pure(small.value)


def _attribute_read(
    source: Source, function: libcst.FunctionDef, line: int
) -> libcst.BaseExpression:
    found = [
        each
        for each in source.below(function.body, libcst.Attribute)
        if line in source.lines_of(each)
        and isinstance(each.value, libcst.Name)
        and each.value.value in _parameters(function)
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


def _named(
    scope: Scope, function: libcst.FunctionDef, found: Sequence[libcst.BaseExpression]
) -> list[_Computed]:
    """Each expression once, with a parameter for it."""
    by_text: dict[str, list[libcst.BaseExpression]] = {}
    for node in found:
        by_text.setdefault(code_of(node.with_changes(lpar=(), rpar=())), []).append(node)
    computed: list[_Computed] = []
    taken: set[str] = set()
    for text, nodes in by_text.items():
        wanted, number = _name_of(nodes[0]), 2
        name = fresh_name(function, wanted)
        while name in taken:
            name, number = fresh_name(function, f"{wanted}_{number}"), number + 1
        taken.add(name)
        dtype = ", dtype=torch.float64" * (_numbers_of(scope.source, nodes[0]) == "float")
        decides = _is_test(scope.source, nodes[0])
        made = f"torch.tensor({text}{dtype})"
        computed.append(_Computed(tuple(nodes), name, made, decides))
    return computed


def _name_of(node: libcst.BaseExpression) -> str:
    """ "mode_is_sharp" of `request.mode is Mode.SHARP`, "crc32_value" of a call of it."""
    if isinstance(node, libcst.UnaryOperation):
        return f"not_{_name_of(node.expression)}"
    if isinstance(node, libcst.Comparison):
        compared = code_of(node.comparisons[0].comparator).rpartition(".")[2]
        word = "".join(each if each.isalnum() else "_" for each in compared.lower()).strip("_")
        negative = isinstance(node.comparisons[0].operator, (libcst.NotEqual, libcst.IsNot))
        return f"{_name_of(node.left)}_is_{'not_' * negative}{word or 'empty'}"
    if isinstance(node, libcst.Call):
        name = dotted(node.func).replace(".", "_")
        return f"{name}_value" if name else "computed_value"
    if isinstance(node, libcst.Subscript):
        return f"{_name_of(node.value).lower()}_value"
    return dotted(node).replace(".", "_")


def _numbers_of(source: Source, node: libcst.BaseExpression) -> str:
    """ "float" or "int" of a table whose values are numbers of the text, with one value at a time;
    empty where the text does not show it."""
    if not isinstance(node, libcst.Subscript):
        return "float" * bool(matchers.findall(node, matchers.Float()))
    for statement in source.module.body:
        for small in getattr(statement, "body", ()):
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


def _is_used_up(
    source: Source,
    function: libcst.FunctionDef,
    parameter: str,
    found: Sequence[libcst.BaseExpression],
) -> bool:
    """Whether all uses of a parameter are computed before the call."""
    inside = {id(each) for node in found for each in source.below(node, libcst.Name)}
    uses = _uses(source, function, parameter)
    return bool(uses) and all(id(each) in inside for each in uses)


def _decorator(
    function: libcst.FunctionDef, name: str, computed: Sequence[_Computed], dropped: set[str]
) -> str:
    called = fresh_name(function, "compiled")
    arguments = [each.name.value for each in function.params.params]
    by_name = [each.name.value for each in function.params.kwonly_params]
    passed = [each for each in arguments if each not in dropped]
    passed += [f"{each}={each}" for each in by_name if each not in dropped]
    passed += [f"{each.name}={each.text}" for each in computed]
    line = f"return {called}({', '.join(passed)})"
    if len(line) + 8 > _LONGEST_LINE:
        rows = "".join(f"            {each},\n" for each in passed)
        line = f"return {called}(\n{rows}        )"
    return (
        f"def {name}({called}):\n"
        f"    @functools.wraps({called})\n"
        f"    def call({code_of(function.params)}):\n"
        f"        {line}\n"
        f"    return call\n"
    )


def _changed(
    source: Source,
    function: libcst.FunctionDef,
    computed: Sequence[_Computed],
    dropped: set[str],
) -> libcst.FunctionDef:
    """The function with parameters for what is computed before, and no branch on these."""
    index = [*source.below(source.module, libcst.FunctionDef)].index(function)
    names = [
        Replacement(node, Once(node, libcst.Name(each.name)))
        for each in computed
        for node in each.nodes
    ]
    parameters = _with_parameters(function.params, [each.name for each in computed], dropped)
    names.append(Replacement(function.params, Once(function.params, parameters)))
    tree = with_edits(source, names)
    deciding = {each.name for each in computed if each.decides}
    while True:
        now = Source(tree.code)
        body = [*now.below(now.module, libcst.FunctionDef)][index]
        edits = _last_branch(now, body, deciding)
        if not edits:
            break
        tree = with_edits(now, edits)
    text = tree.code
    for name in deciding:
        text = text.replace(f"{name}.bool()", name)  # they are truth values already
    whole = libcst.parse_module(text)
    functions = matchers.findall(whole, matchers.FunctionDef())
    made = functions[index]
    assert isinstance(made, libcst.FunctionDef)
    return made


def _with_parameters(
    parameters: libcst.Parameters, names: Sequence[str], dropped: set[str]
) -> libcst.Parameters:
    kept = [each for each in parameters.params if each.name.value not in dropped]
    by_name = [each for each in parameters.kwonly_params if each.name.value not in dropped]
    plain = libcst.MaybeSentinel.DEFAULT
    by_name += [libcst.Param(libcst.Name(name)) for name in names]
    return parameters.with_changes(
        params=[each.with_changes(comma=plain) for each in kept],
        kwonly_params=[each.with_changes(comma=plain) for each in by_name],
        star_arg=libcst.ParamStar() if by_name else plain,
    )


def _last_branch(
    source: Source, function: libcst.FunctionDef, deciding: set[str]
) -> list[EditOfTree]:
    """The edit of the last branch that is still decided by one of the names."""
    branches = [
        each
        for kind in (libcst.If, libcst.IfExp)
        for each in source.below(function.body, kind)
        if names_in(each.test) & deciding
    ]
    if not branches:
        return []
    # What stands in a side of another branch is chosen first.
    node = max(branches, key=lambda each: (source.position(each.test), isinstance(each, libcst.If)))
    if isinstance(node, libcst.IfExp):
        return [chosen_expression(source, node)]
    lines = [str(source.lines_of(each.test).start) for each in branches]
    line = source.lines_of(node.test).start
    return list(choose(source, Edit("", line, "choose", tuple(lines))))
