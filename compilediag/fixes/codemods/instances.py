"""Instances of a module that differ in the name of a function of torch: a tensor chooses it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import libcst

from compilediag.fixes.codemods.choices import function_at, space_of_getattr
from compilediag.fixes.codemods.edit import Edit, EditImpossible
from compilediag.fixes.codemods.names import fresh_name
from compilediag.fixes.codemods.numbers import is_module
from compilediag.fixes.codemods.placed import Once
from compilediag.fixes.codemods.purity import ELEMENTWISE, code_of
from compilediag.fixes.codemods.tree import EditOfTree, Insertion, Replacement, Source


def chosen_by_buffer(source: Source, edit: Edit) -> Iterator[EditOfTree]:
    """Edit "chosen_by_buffer": `code` has an attribute and the names of functions that instances
    have in it. `getattr(torch, self.activation)(x)` of the line computes x by each of them, and a
    buffer of the instance, which no checkpoint has, chooses."""
    name, *values = edit.code
    function = function_at(source, edit.line)
    calls = [
        (call, space)
        for call in source.below(function.body, libcst.Call)
        if edit.line in source.lines_of(call)
        and (space := space_of_getattr(source, call.func, f"self.{name}"))
    ]
    if len(calls) != 1 or len(values) < 2:
        raise EditImpossible(f"`self.{name}` does not choose one function in line {edit.line}")
    ((call, space),) = calls
    if len(call.args) != 1 or call.args[0].star or call.args[0].keyword is not None:
        raise EditImpossible(f"what `self.{name}` chooses takes more than one argument")
    if not ELEMENTWISE.issuperset(values):
        raise EditImpossible("one of the functions may do more than compute a value")
    owner, statement = _made(source, function, name)
    chosen = fresh_name(source.module, f"{name}_is")
    helper = fresh_name(source.module, f"by_{name}")
    known = ", ".join(map(repr, values))
    given = code_of(_assignment(statement).value)
    wrong = f'raise ValueError(f"{{{given}!r}} is none of those that are compiled")'
    check = f"if {given} not in ({known}):\n    {wrong}\n"
    which = f"torch.tensor([{given} == each for each in ({known})])"
    kept = f'self.register_buffer("{chosen}", {which}, persistent=False)'
    statements = [statement, *map(libcst.parse_statement, (check, kept))]
    new = libcst.FlattenSentinel(statements)
    yield Replacement(statement, Once(statement, new))
    yield Insertion(owner, (_helper(helper, space, values),))
    passed = code_of(call.args[0].value)
    made = libcst.parse_expression(f"{helper}(self.{chosen}, {passed})")
    yield Replacement(call, Once(call, made))


def _made(
    source: Source, function: libcst.FunctionDef, name: str
) -> tuple[libcst.ClassDef, libcst.SimpleStatementLine]:
    """The class of the module and the one statement of its `__init__` that sets the attribute,
    where the file has no other use of it."""
    owner = source.parent(source.parent(function))
    uses = [
        each for each in source.below(source.module, libcst.Attribute) if each.attr.value == name
    ]
    assigned = [
        each
        for each in source.below(source.module, libcst.Assign)
        if len(each.targets) == 1 and code_of(each.targets[0].target) == f"self.{name}"
    ]
    if not isinstance(owner, libcst.ClassDef) or len(assigned) != 1 or len(uses) != 2:
        raise EditImpossible(f"`self.{name}` is used for more")
    statement = source.parent(assigned[0])
    init = next(source.around(statement, libcst.FunctionDef), None)
    made = init is not None and init.name.value == "__init__" and init in owner.body.body
    is_plain = isinstance(assigned[0].value, (libcst.Name, libcst.SimpleString))
    if not made or not is_plain or not is_module(source, owner, statement):
        raise EditImpossible(f"`self.{name}` is not set once, by the `__init__` of a module")
    if not isinstance(statement, libcst.SimpleStatementLine) or len(statement.body) != 1:
        raise EditImpossible(f"`self.{name}` is set among other statements")
    return owner, statement


def _assignment(statement: libcst.SimpleStatementLine) -> libcst.Assign:
    assigned = statement.body[0]
    assert isinstance(assigned, libcst.Assign), "a statement that sets it"
    return assigned


def _helper(name: str, space: str, values: Sequence[str]) -> str:
    lines = [f"def {name}(chosen, value):", f"    result = {space}.{values[0]}(value)"]
    lines += [
        f"    result = torch.where(chosen[{at}], {space}.{each}(value), result)"
        for at, each in enumerate(values[1:], 1)
    ]
    return "\n".join([*lines, "    return result\n"])
