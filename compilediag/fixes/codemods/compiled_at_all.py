"""Programs that compile nothing because a switch is on."""

from __future__ import annotations

from collections.abc import Iterator

import libcst

from compilediag.fixes.codemods.edit import Edit, EditImpossible
from compilediag.fixes.codemods.purity import code_of
from compilediag.fixes.codemods.tree import EditOfTree, Replacement, Source

_SWITCHES = ("TORCH_COMPILE_DISABLE", "TORCHDYNAMO_DISABLE")


def without_switch(source: Source, _: Edit) -> Iterator[EditOfTree]:
    """Edit "without_switch": the statements of the module that switch compilation off by a
    variable of the environment are left out."""
    found = [
        statement
        for statement in source.module.body
        if isinstance(statement, libcst.SimpleStatementLine) and _switches(statement)
    ]
    if not found:
        raise EditImpossible("no statement of the file switches compilation off")
    for statement in found:
        if any(line.comment is not None for line in statement.leading_lines):
            raise EditImpossible("a comment stands at the switch: it may have a reason")
        yield Replacement(statement, _gone)


def _gone(_: libcst.CSTNode) -> libcst.RemovalSentinel:
    return libcst.RemoveFromParent()


def _switches(statement: libcst.SimpleStatementLine) -> bool:
    small = statement.body[0]
    if len(statement.body) != 1 or not isinstance(small, libcst.Assign) or len(small.targets) != 1:
        return False
    target = code_of(small.targets[0].target).replace("'", '"')
    value = small.value
    on = isinstance(value, libcst.SimpleString) and value.evaluated_value == "1"
    return on and target in [f'os.environ["{name}"]' for name in _SWITCHES]
