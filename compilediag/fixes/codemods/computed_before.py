"""What a compiled function computes without tensors, computed before the call instead and passed as
a tensor: a decorator outside `torch.compile` does it. Branches that are decided by it become
`torch.where`."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import libcst
from libcst import matchers

from compilediag.fixes.codemods.branches import choose, chosen_expression
from compilediag.fixes.codemods.choices import function_at
from compilediag.fixes.codemods.compiled_instance import compiled_instance, owner_of_forward
from compilediag.fixes.codemods.computed_parts import (
    Parts,
    is_literal,
    is_test,
    numbers_of,
    parameter_names,
    parts_of,
    together,
    uses_in_body,
)
from compilediag.fixes.codemods.contexts import Called, is_compile, only_compile
from compilediag.fixes.codemods.edit import Edit, EditImpossible
from compilediag.fixes.codemods.names import fresh_name, names_in
from compilediag.fixes.codemods.placed import Once
from compilediag.fixes.codemods.purity import Scope, code_of, dotted, scope_of
from compilediag.fixes.codemods.tree import EditOfTree, Insertion, Replacement, Source, with_edits

_LONGEST_LINE = 88


def computed_before(source: Source, edits: Sequence[Edit]) -> Iterator[EditOfTree]:
    """Edits "computed_before": `code` has what is computed before the call of the function of the
    line; all those of one function get one decorator.

    ("of", "mode") or ("of", "request.mode"): all that the function reads of an argument that is no
    tensor, compared with constants, asked by a method of text, or looked up in a table of numbers;
    with "flag" behind it, an argument that is True or False. ("one_of", "name", …): the same of an
    argument that chooses a function (`choices.py`). ("call", "crc32"): the call of that
    function in the line. ("read",): the one attribute of an argument that the line reads.
    ("raise",): the statement of the line that raises an error for the arguments.
    ("neutral", "request.bias", "8"): zeros or ones of that shape for None.
    """
    of_functions: dict[libcst.FunctionDef, list[Edit]] = {}
    for edit in edits:
        of_functions.setdefault(function_at(source, edit.line), []).append(edit)
    for function, own in of_functions.items():
        yield from _of_function(source, function, own)


def _of_function(
    source: Source, function: libcst.FunctionDef, edits: Sequence[Edit]
) -> Iterator[EditOfTree]:
    scope = scope_of(source)
    _require_simple(function)
    first = is_compile(scope, function)
    owner = None if first else owner_of_forward(source, function)
    parts = together([parts_of(scope, function, edit) for edit in edits])
    computed = _named(scope, function, parts)
    suffix = "with_tensors" if computed else "after_checks"
    name = fresh_name(source.module, f"{function.name.value}_{suffix}")
    dropped = {
        each for each in parameter_names(function) if _is_used_up(source, function, each, parts)
    }
    decorator = _decorator(function, name, computed, dropped, parts, of_instance=owner is not None)
    changed = _changed(source, function, computed, dropped, parts)
    if first:
        apart = [libcst.EmptyLine(indent=False)] * 2
        own = libcst.Decorator(libcst.Name(name), leading_lines=apart)
        changed = changed.with_changes(decorators=[own, *changed.decorators])
    elif owner is not None:
        yield Replacement(compiled_instance(scope, owner), Called(name))
    else:
        yield Replacement(only_compile(scope, function), Called(name))
    yield Insertion(owner or function, (decorator,))
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


def _require_simple(function: libcst.FunctionDef) -> None:
    """Parameters by name, with constants for defaults: the decorator has the same ones."""
    parameters = function.params
    starred = (parameters.star_arg, parameters.star_kwarg)
    if parameters.posonly_params or any(isinstance(each, libcst.Param) for each in starred):
        raise EditImpossible(f"`{function.name.value}` takes more than named arguments")
    if function.asynchronous or matchers.findall(function, matchers.Yield()):
        raise EditImpossible(f"`{function.name.value}` is not a plain function")
    for each in (*parameters.params, *parameters.kwonly_params):
        if each.default is not None and not is_literal(each.default):
            raise EditImpossible(f"the default of `{each.name.value}` is not a constant")


def _named(scope: Scope, function: libcst.FunctionDef, parts: Parts) -> list[_Computed]:
    """Each expression once, with a parameter for it."""
    by_text: dict[str, list[libcst.BaseExpression]] = {}
    for node in parts.values:
        by_text.setdefault(code_of(node.with_changes(lpar=(), rpar=())), []).append(node)
    computed: list[_Computed] = []
    taken: set[str] = set()
    for text, nodes in by_text.items():
        wanted, number = _name_of(nodes[0]), 2
        name = fresh_name(function, wanted)
        while name in taken:
            name, number = fresh_name(function, f"{wanted}_{number}"), number + 1
        taken.add(name)
        dtype = ", dtype=torch.float64" * (numbers_of(scope.source, nodes[0]) == "float")
        decides = is_test(scope.source, nodes[0])
        made = parts.tensors.get(nodes[0], f"torch.tensor({text}{dtype})")
        computed.append(_Computed(tuple(nodes), name, made, decides))
    return computed


def _name_of(node: libcst.BaseExpression) -> str:
    """As "mode_is_sharp" of `request.mode is Mode.SHARP`, "crc32_value" of a call of it."""
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


def _is_used_up(source: Source, function: libcst.FunctionDef, parameter: str, parts: Parts) -> bool:
    """Whether all uses of a parameter are computed before the call."""
    gone = [*parts.values, *parts.messages]
    inside = {id(each) for node in gone for each in source.below(node, libcst.Name)}
    uses = uses_in_body(source, function, parameter)
    return bool(uses) and all(id(each) in inside for each in uses)


def _decorator(
    function: libcst.FunctionDef,
    name: str,
    computed: Sequence[_Computed],
    dropped: set[str],
    parts: Parts,
    *,
    of_instance: bool,
) -> str:
    called = fresh_name(function, "compiled")
    parameters = function.params
    if of_instance:  # the instance is what is called
        parameters = parameters.with_changes(params=parameters.params[1:])
    arguments = [each.name.value for each in parameters.params]
    by_name = [each.name.value for each in function.params.kwonly_params]
    passed = [each for each in arguments if each not in dropped]
    passed += [f"{each}={each}" for each in by_name if each not in dropped]
    passed += [f"{each.name}={each.text}" for each in computed]
    line = f"return {called}({', '.join(passed)})"
    if len(line) + 8 > _LONGEST_LINE:
        rows = "".join(f"            {each},\n" for each in passed)
        line = f"return {called}(\n{rows}        )"
    checks = "".join(f"{textwrap.indent(each, ' ' * 8)}\n" for each in parts.checks)
    messages = "".join(
        f"        {code_of(each.with_changes(leading_lines=())).strip()}\n"
        for each in parts.messages
    )
    return (
        f"def {name}({called}):\n"
        f"    @functools.wraps({called})\n"
        f"    def call({code_of(parameters)}):\n"
        f"{checks}{messages}        {line}\n"
        f"    return call\n"
    )


def _changed(
    source: Source,
    function: libcst.FunctionDef,
    computed: Sequence[_Computed],
    dropped: set[str],
    parts: Parts,
) -> libcst.FunctionDef:
    """The function with parameters for what is computed before, and no branch on these."""
    index = [*source.below(source.module, libcst.FunctionDef)].index(function)
    names = [
        Replacement(node, Once(node, libcst.Name(each.name)))
        for each in computed
        for node in each.nodes
    ]
    names += [*parts.edits, *(Replacement(each, _gone) for each in parts.messages)]
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


def _gone(_: libcst.CSTNode) -> libcst.RemovalSentinel:
    return libcst.RemoveFromParent()


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
