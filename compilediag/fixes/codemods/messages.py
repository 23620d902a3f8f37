"""Statements that only write text: left out where the code is compiled."""

from __future__ import annotations

from collections.abc import Iterator

import libcst
from libcst import matchers

from compilediag.fixes.codemods.edit import Edit, EditImpossible, NothingToEdit
from compilediag.fixes.codemods.names import require_not_shared
from compilediag.fixes.codemods.purity import Scope, code_of, scope_of, words
from compilediag.fixes.codemods.statements import under_condition, under_further_condition
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
_READS = ("item", "tolist", "cpu", "numpy")
"""Methods of tensors that read their values."""
_BUILTINS = words(
    """len tuple list dict set float int bool str repr type round id abs min max sum sorted format
    any all range zip enumerate"""
)


_EFFECTS = matchers.NamedExpr() | matchers.Yield() | matchers.Await()


def message(source: Source, edit: Edit) -> Iterator[EditOfTree]:
    """Edit "message": a statement that only writes text, a branch around such statements, or a
    clock or number that is read for them only, stands under `if not
    torch.compiler.is_compiling():`."""
    scope = scope_of(source)
    branch = _branch_at(source, edit.line)
    if branch is not None:
        if not _is_message_branch(scope, branch):
            raise NothingToEdit(f"the branch in line {edit.line} does more than write text")
        yield _left_out(branch)
        return
    statement = source.statement_at(edit.line)
    if _writes_text(scope, statement, set()):
        yield _left_out(statement)
        return
    try:
        found = _read_for_text(scope, statement)
    except EditImpossible as error:
        if any(scope.imported_name(call.func) in _CLOCKS for call in _calls_in(scope, statement)):
            raise
        raise NothingToEdit(str(error)) from error
    for each in found:
        yield _left_out(each)


def _calls_in(scope: Scope, *nodes: libcst.CSTNode) -> list[libcst.Call]:
    return [call for each in nodes for call in scope.source.below(each, libcst.Call)]


def _left_out(statement: libcst.SimpleStatementLine | libcst.If) -> Replacement:
    alone = isinstance(statement, libcst.If) and statement.orelse is None
    return Replacement(statement, under_further_condition if alone else under_condition)


def _branch_at(source: Source, line: int) -> libcst.If | None:
    """The `if` that is decided in a line, from its first condition on."""
    branches = source.below(source.module, libcst.If)
    found = next((each for each in branches if line in source.lines_of(each.test)), None)
    while found is not None:
        parent = source.parent(found)
        if not isinstance(parent, libcst.If) or parent.orelse is not found:
            break
        found = parent
    return found


def _is_message_branch(scope: Scope, branch: libcst.If) -> bool:
    """Whether all sides of a branch only write text, and its conditions do nothing else."""
    if not _is_only_read(scope, branch.test):
        return False
    sides = [branch.body]
    if isinstance(branch.orelse, libcst.If):
        if not _is_message_branch(scope, branch.orelse):
            return False
    elif branch.orelse is not None:
        sides.append(branch.orelse.body)
    return all(_is_message(scope, each) for side in sides for each in side.body)


def _is_message(scope: Scope, statement: libcst.CSTNode) -> bool:
    if isinstance(statement, libcst.If):
        return _is_message_branch(scope, statement)
    return _writes_text(scope, statement, set())


def _is_only_read(scope: Scope, *values: libcst.BaseExpression) -> bool:
    """Whether nothing outside a message depends on how often expressions are computed."""
    if any(matchers.findall(each, _EFFECTS) for each in values):
        return False
    return all(_is_harmless(scope, call) for call in _calls_in(scope, *values))


def _writes_text(scope: Scope, statement: libcst.CSTNode, seen: set[str]) -> bool:
    """Whether a statement is a call of something that does nothing but write text."""
    if isinstance(statement, libcst.SimpleStatementLine):
        if len(statement.body) != 1:
            return False
        statement = statement.body[0]
    if not isinstance(statement, libcst.Expr) or not isinstance(statement.value, libcst.Call):
        return False
    call = statement.value
    arguments = [argument.value for argument in call.args]
    return _is_only_read(scope, *arguments) and _is_writer(scope, call, seen)


def _is_harmless(scope: Scope, call: libcst.Call) -> bool:
    """A call within a message: nothing else may depend on it."""
    name = call.func.value if isinstance(call.func, libcst.Name) else ""
    if name in _BUILTINS:
        return True
    if scope.imported_name(call.func) in _CLOCKS and not call.args:
        return True
    if isinstance(call.func, libcst.Attribute) and call.func.attr.value in (
        *_READS,
        "format",
        "join",
    ):
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


def _read_for_text(
    scope: Scope, statement: libcst.SimpleStatementLine
) -> list[libcst.SimpleStatementLine | libcst.If]:
    """The statement that reads a clock or a number, and all that use it, where all are for
    messages."""
    source = scope.source
    function = next(source.around(statement, libcst.FunctionDef), None)
    if function is None:
        raise NothingToEdit("the statement is not inside a function")
    found: list[libcst.SimpleStatementLine | libcst.If] = []
    waiting: list[libcst.SimpleStatementLine | libcst.If] = [statement]
    while waiting:
        each = waiting.pop(0)
        if each in found:
            continue
        found.append(each)
        name = _value_for_text(scope, each, first=each is statement)
        if name is None:
            continue
        require_not_shared(function, name)
        uses = [use for use in source.below(function, libcst.Name) if use.value == name]
        waiting += [_statement_of(scope, use, name) for use in uses]
    alone = [
        each
        for each in found
        if not any(above in found for above in source.around(each, libcst.If))
    ]
    return sorted(alone, key=lambda each: source.lines_of(each).start)


def _statement_of(
    scope: Scope, use: libcst.Name, name: str
) -> libcst.SimpleStatementLine | libcst.If:
    """The statement with a use of a value; for a condition, the whole branch."""
    source = scope.source
    statement = next(source.around(use, libcst.SimpleStatementLine), None)
    if statement is not None:
        return statement
    branch = _branch_at(source, source.lines_of(use).start)
    if branch is None or not _is_message_branch(scope, branch):
        raise EditImpossible(f"`{name}` decides what is computed")
    return branch


def _value_for_text(
    scope: Scope, statement: libcst.SimpleStatementLine | libcst.If, *, first: bool
) -> str | None:
    """The variable that holds a time or number; None for a message."""
    if not first and _is_message(scope, statement):
        return None
    problem = NothingToEdit if first else EditImpossible
    text = code_of(statement).strip()
    body = statement.body if isinstance(statement, libcst.SimpleStatementLine) else ()
    small = body[0] if len(body) == 1 else None
    if not isinstance(small, libcst.Assign):
        raise problem(f"`{text}` does more than write text")
    target = small.targets[0].target
    calls = _calls_in(scope, small.value)
    if (
        len(small.targets) != 1
        or not isinstance(target, libcst.Name)
        or not _is_only_read(scope, small.value)
    ):
        raise problem(f"`{text}` does more than write text")
    if first and not any(_reads(scope, call) for call in calls):
        raise problem(f"`{text}` reads no clock and no number of a tensor")
    return target.value


def _reads(scope: Scope, call: libcst.Call) -> bool:
    method = call.func.attr.value if isinstance(call.func, libcst.Attribute) else ""
    name = call.func.value if isinstance(call.func, libcst.Name) else ""
    return (
        scope.imported_name(call.func) in _CLOCKS
        or method in _READS
        or name in ("float", "int", "bool")
    )
