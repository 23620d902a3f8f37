"""Statements that only write text: left out where the code is compiled."""

from __future__ import annotations

from collections.abc import Iterator

import libcst
from libcst import matchers

from compilediag.fixes.codemods.edit import Edit, EditImpossible, NothingToEdit
from compilediag.fixes.codemods.purity import Scope, code_of, scope_of, words
from compilediag.fixes.codemods.statements import under_condition
from compilediag.fixes.codemods.tree import EditOfTree, Replacement, Source

_WRITERS = words(
    """warnings.warn warnings.warn_explicit sys.stdout.write sys.stdout.flush sys.stderr.write
    sys.stderr.flush tqdm.write tqdm.tqdm.write tqdm.auto.tqdm.write traceback.print_stack
    pprint.pprint logging.debug logging.info logging.warning logging.error logging.critical
    logging.exception logging.log"""
)
_OF_LOGGERS = frozenset(("debug", "info", "warning", "error", "critical", "exception", "log"))
_BARS = frozenset(("tqdm.tqdm", "tqdm.auto.tqdm", "tqdm.trange"))
_OF_BARS = frozenset(("update", "set_postfix", "set_description", "refresh", "write"))
_CLOCKS = words(
    """time.perf_counter time.time time.monotonic time.process_time time.perf_counter_ns
    time.time_ns datetime.datetime.now"""
)


def message(source: Source, edit: Edit) -> Iterator[EditOfTree]:
    """Edit "message": a statement that only writes text, or reads a clock for such statements,
    stands under `if not torch.compiler.is_compiling():`."""
    scope = scope_of(source)
    statement = source.statement_at(edit.line)
    if _writes_text(scope, statement, set()):
        yield Replacement(statement, under_condition)
        return
    for each in _of_clock(scope, statement):
        yield Replacement(each, under_condition)


def _writes_text(scope: Scope, statement: libcst.CSTNode, seen: set[str]) -> bool:
    """Whether a statement is a call of something that does nothing but write text."""
    if not matchers.matches(
        statement, matchers.SimpleStatementLine(body=[matchers.Expr(matchers.Call())])
    ):
        return False
    assert isinstance(statement, libcst.SimpleStatementLine)
    expression = statement.body[0]
    assert isinstance(expression, libcst.Expr)
    assert isinstance(expression.value, libcst.Call)
    call = expression.value
    arguments = [argument.value for argument in call.args]
    nested = [inner for each in arguments for inner in scope.source.below(each, libcst.Call)]
    if any(not _is_harmless(scope, inner) for inner in nested):
        return False
    walrus = matchers.NamedExpr() | matchers.Yield() | matchers.Await()
    if any(matchers.findall(each, walrus) for each in arguments):
        return False
    return _is_writer(scope, call, seen)


def _is_harmless(scope: Scope, call: libcst.Call) -> bool:
    """A call within a message: nothing else may depend on it."""
    name = call.func.value if isinstance(call.func, libcst.Name) else ""
    if name in ("len", "tuple", "list", "float", "int", "str", "repr", "type", "round", "id"):
        return True
    if scope.imported_name(call.func) in _CLOCKS and not call.args:
        return True
    if matchers.matches(call.func, matchers.Attribute(attr=matchers.Name("item"))):
        return True
    if matchers.matches(call.func, matchers.Attribute(attr=matchers.Name("format"))):
        return True
    try:
        scope.require_pure(call)
    except EditImpossible:
        return False
    return True


def _is_writer(scope: Scope, call: libcst.Call, seen: set[str]) -> bool:
    full = scope.imported_name(call.func)
    if full is not None:
        return full in _WRITERS
    if isinstance(call.func, libcst.Attribute):
        owner = call.func.value
        maker = _maker_of(scope, owner.value) if isinstance(owner, libcst.Name) else ""
        method = call.func.attr.value
        return (maker == "logging.getLogger" and method in _OF_LOGGERS) or (
            maker in _BARS and method in _OF_BARS
        )
    if not isinstance(call.func, libcst.Name):
        return False
    name = call.func.value
    own = [
        each
        for each in scope.source.below(scope.source.module, libcst.FunctionDef)
        if each.name.value == name
    ]
    if not own:
        return name == "print" and not _is_assigned(scope, name)
    return len(own) == 1 and name not in seen and _only_writes(scope, own[0], {*seen, name})


def _only_writes(scope: Scope, function: libcst.FunctionDef, seen: set[str]) -> bool:
    """Whether a helper's whole body writes text."""
    if function.decorators or function.asynchronous is not None:
        return False
    if scope.source.parent(function) is not scope.source.module:
        return False
    docstring = matchers.SimpleStatementLine(body=[matchers.Expr(matchers.SimpleString())])
    statements = [each for each in function.body.body if not matchers.matches(each, docstring)]
    return bool(statements) and all(_writes_text(scope, each, seen) for each in statements)


def _maker_of(scope: Scope, name: str) -> str:
    """The function that makes what a variable holds, everywhere in the file; empty where there are
    several or none."""
    made = {
        scope.imported_name(each.value.func) or "" if isinstance(each.value, libcst.Call) else ""
        for each in scope.source.below(scope.source.module, libcst.Assign)
        if any(code_of(target.target) == name for target in each.targets)
    }
    return made.pop() if len(made) == 1 else ""


def _is_assigned(scope: Scope, name: str) -> bool:
    targets = scope.source.below(scope.source.module, libcst.AssignTarget)
    return any(code_of(each.target) == name for each in targets)


def _of_clock(
    scope: Scope, statement: libcst.SimpleStatementLine
) -> list[libcst.SimpleStatementLine]:
    """The statement that reads a clock and all that use the time, where all are for messages."""
    source = scope.source
    function = next(source.around(statement, libcst.FunctionDef), None)
    if function is None:
        raise EditImpossible("the statement is not inside a function")
    found: list[libcst.SimpleStatementLine] = []
    waiting = [statement]
    while waiting:
        each = waiting.pop(0)
        if each in found:
            continue
        name = _time_in(scope, each, first=not found)
        found.append(each)
        if name is None:
            continue
        uses = [use for use in source.below(function, libcst.Name) if use.value == name]
        waiting += [_simple_statement(source, use, name) for use in uses]
    return sorted(found, key=lambda each: source.lines_of(each).start)


def _simple_statement(source: Source, use: libcst.Name, name: str) -> libcst.SimpleStatementLine:
    statement = next(source.around(use, libcst.SimpleStatementLine), None)
    if statement is None:
        raise EditImpossible(f"`{name}` decides what is computed")
    return statement


def _time_in(scope: Scope, statement: libcst.SimpleStatementLine, *, first: bool) -> str | None:
    """The variable that holds a time; None for a message."""
    if not first and _writes_text(scope, statement, set()):
        return None
    problem = NothingToEdit if first else EditImpossible
    small = statement.body[0]
    if len(statement.body) != 1 or not isinstance(small, libcst.Assign):
        raise problem(f"`{code_of(statement).strip()}` does more than write text")
    target = small.targets[0].target
    calls = list(scope.source.below(small.value, libcst.Call))
    clocks = all(scope.imported_name(call.func) in _CLOCKS and not call.args for call in calls)
    if len(small.targets) != 1 or not isinstance(target, libcst.Name) or not clocks:
        raise problem(f"`{code_of(statement).strip()}` does more than write text")
    if first and not calls:
        raise problem(f"`{code_of(statement).strip()}` reads no clock")
    return target.value
