"""What a loop, or a function that is called again and again, makes anew each time and passes to
compiled code: made once, before it.

Only what is the same each time: it captures nothing that changes there, and making it does nothing
else. A class or function has another identity each time, a compiled function another backend.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import libcst
from libcst import matchers

from compilediag.fixes.codemods.calls import call_at
from compilediag.fixes.codemods.edit import Edit, EditImpossible
from compilediag.fixes.codemods.names import (
    bound_in,
    free_names,
    fresh_name,
    parameters_of,
    uses_of,
    written_in,
)
from compilediag.fixes.codemods.purity import Scope, code_of, is_number, scope_of
from compilediag.fixes.codemods.tree import EditOfTree, Replacement, Source

_WRAPPERS = frozenset(("torch.compile", "functools.partial"))
_CLASS_DECORATORS = frozenset(("dataclasses.dataclass",))
_METHOD_DECORATORS = frozenset(("staticmethod", "classmethod", "property"))
_DOCSTRING = matchers.SimpleStatementLine(body=[matchers.Expr(matchers.SimpleString())])
_PASS = matchers.SimpleStatementLine(body=[matchers.Pass()])

_Definition = libcst.FunctionDef | libcst.ClassDef
_Made = libcst.SimpleStatementLine | _Definition
_Repeated = libcst.For | libcst.While | libcst.FunctionDef


def hoisted(source: Source, edit: Edit) -> Iterator[EditOfTree]:
    """Edit "hoisted": what a call passes, or the compiled function that it calls, is made once.
    `code` is the text of the call, and that of the argument; empty for the function."""
    scope, call = scope_of(source), call_at(source, edit)
    value = _argument(call, edit.code[1]) if edit.code[1] else call.func
    inline = isinstance(value, (libcst.Lambda, libcst.Call)) and not _is_local_class(source, value)
    subject = _statement_around(source, call) if inline else _maker(source, value)
    why = EditImpossible(f"`{code_of(value)}` is not made in a loop or a function")
    for outer in _repeated_around(source, subject):
        move = _Move(scope, outer, call)
        try:
            if inline:
                move.require_same_value(value)
                yield from _named(source, outer, value)
            else:
                yield from move.edits(subject)
            return
        except EditImpossible as error:
            why = error
    raise why


def _argument(call: libcst.Call, text: str) -> libcst.BaseExpression:
    found = [each.value for each in call.args if not each.star and code_of(each.value) == text]
    if len(found) != 1:
        raise EditImpossible(f"the call does not pass `{text}` exactly once")
    return found[0]


def _statement_around(source: Source, node: libcst.CSTNode) -> libcst.SimpleStatementLine:
    found = next(source.around(node, libcst.SimpleStatementLine), None)
    if found is None:
        raise EditImpossible(f"`{code_of(node)}` is not in a statement of its own")
    return found


def _is_local_class(source: Source, value: libcst.BaseExpression) -> bool:
    """Whether it makes an object of a class: that class is what is made anew."""
    if not isinstance(value, libcst.Call) or not isinstance(value.func, libcst.Name):
        return False
    return isinstance(_binding(source, value.func), libcst.ClassDef)


def _maker(source: Source, value: libcst.BaseExpression) -> _Made:
    """The statement that makes a value; the class, where it makes an object of one."""
    name = value.func if isinstance(value, libcst.Call) else value
    if not isinstance(name, libcst.Name):
        raise EditImpossible(f"`{code_of(value)}` is not a variable")
    statement = _binding(source, name)
    if statement is None:
        raise EditImpossible(f"`{name.value}` is not made at exactly one place")
    made = _value_of(statement)
    if isinstance(made, libcst.Call) and _is_local_class(source, made):
        return _maker(source, made)
    return statement


def _binding(source: Source, name: libcst.Name) -> _Made | None:
    """The only statement that binds a name in its function, or in the module."""
    whole = next(source.around(name, libcst.FunctionDef), source.module)
    found = [each for each in _makers_in(source, whole) if _name_of(each) == name.value]
    others = list(bound_in(source, whole)).count(name.value)
    return found[0] if len(found) == others == 1 else None


def _makers_in(source: Source, whole: libcst.CSTNode) -> Iterator[_Made]:
    for kind in (libcst.SimpleStatementLine, libcst.FunctionDef, libcst.ClassDef):
        for each in source.below(whole, kind):
            if each is not whole and not _is_member(source, each, whole):
                yield each


def _is_member(source: Source, node: libcst.CSTNode, whole: libcst.CSTNode) -> bool:
    """Whether it stands in a class or function below the whole."""
    for around in source.around(node, libcst.CSTNode):
        if around is whole:
            return False
        if isinstance(around, _Definition):
            return True
    return True


def _name_of(statement: _Made) -> str:
    if isinstance(statement, _Definition):
        return statement.name.value
    small = statement.body[0]
    if len(statement.body) != 1 or not isinstance(small, libcst.Assign) or len(small.targets) > 1:
        return ""
    target = small.targets[0].target
    return target.value if isinstance(target, libcst.Name) else ""


def _value_of(statement: _Made) -> libcst.BaseExpression | None:
    if isinstance(statement, libcst.SimpleStatementLine) and _name_of(statement):
        return libcst.ensure_type(statement.body[0], libcst.Assign).value
    return None


def _repeated_around(source: Source, node: libcst.CSTNode) -> list[_Repeated]:
    """Loops and functions that a statement stands in, the outermost first; of a method loops."""
    found: list[_Repeated] = []
    for each in source.around(node, libcst.CSTNode):
        if isinstance(each, libcst.ClassDef):
            return [item for item in found[::-1] if not isinstance(item, libcst.FunctionDef)]
        if isinstance(each, _Repeated):
            found.append(each)
    return found[::-1]


def _named(source: Source, outer: _Repeated, value: libcst.BaseExpression) -> Iterator[EditOfTree]:
    """An expression that stands in the call gets a name before the loop."""
    wanted = "compiled" if isinstance(value, libcst.Call) else "function"
    name = fresh_name(source.module, wanted)
    assigned = libcst.parse_statement(f"{name} = {code_of(value)}")
    assert isinstance(assigned, libcst.SimpleStatementLine), "an assignment"
    yield Replacement(value, _Put(libcst.Name(name)))
    yield Replacement(outer, _Before((assigned,)))


@dataclass(frozen=True, slots=True)
class _Move:
    """What may be made before a loop or function, and not in it."""

    scope: Scope
    outer: _Repeated
    call: libcst.Call

    def edits(self, subject: _Made) -> Iterator[EditOfTree]:
        """The edits that move a statement, and those that it needs.

        Raises:
            EditImpossible: it is not the same each time, or more depends on its being new.
        """
        moved = self._needed(subject, ())
        for statement in moved:
            self._require_used_only(statement, moved)
        for statement in moved:
            yield Replacement(statement, _removed)
        bare = tuple(each.with_changes(leading_lines=_comments(each)) for each in moved)
        yield Replacement(self.outer, _Before(bare))

    def _needed(self, statement: _Made, waiting: tuple[_Made, ...]) -> tuple[_Made, ...]:
        """A statement behind all that it needs of what the loop makes."""
        if statement in waiting:
            raise EditImpossible(f"`{_name_of(statement)}` is made from itself")
        self._require_same(statement)
        source, before = self.scope.source, tuple[_Made, ...]()
        inside = list(bound_in(source, self.outer))
        for name in free_names(source, statement):
            if name not in inside and name not in self._parameters():
                continue
            found = [
                each
                for each in _makers_in(source, self._around())
                if _name_of(each) == name and each is not statement
            ]
            if len(found) != 1 or inside.count(name) != 1:
                raise EditImpossible(f"`{name}` changes where `{_name_of(statement)}` is made")
            deeper = self._needed(found[0], (*waiting, statement))
            before += tuple(each for each in deeper if each not in before)
        return (*before, statement)

    def _around(self) -> libcst.CSTNode:
        """The function or module whose variables a loop has; a function that is left itself."""
        if isinstance(self.outer, libcst.FunctionDef):
            return self.outer
        return next(
            self.scope.source.around(self.outer, libcst.FunctionDef), self.scope.source.module
        )

    def _parameters(self) -> set[str]:
        return parameters_of(self.outer) if isinstance(self.outer, libcst.FunctionDef) else set()

    def _require_same(self, statement: _Made) -> None:
        if isinstance(statement, libcst.ClassDef):
            self._require_same_class(statement)
        elif isinstance(statement, libcst.FunctionDef):
            if statement.decorators:
                raise EditImpossible(f"`{statement.name.value}` is decorated")
            self._require_constant_defaults(statement.params)
        else:
            value = _value_of(statement)
            if value is None:
                raise EditImpossible(f"`{code_of(statement).strip()}` makes more than one value")
            self._require_same_made(value)
        self._require_bound_before(statement)

    def require_same_value(self, value: libcst.BaseExpression) -> None:
        """Raises EditImpossible where an expression may give something else each time."""
        self._require_same_made(value)
        source = self.scope.source
        inside = {*bound_in(source, self.outer), *self._parameters()}
        if changed := inside & free_names(source, value):
            raise EditImpossible(f"`{min(changed)}` changes where `{code_of(value)}` is made")
        self._require_bound_before(value)

    def _require_same_made(self, value: libcst.BaseExpression) -> None:
        if isinstance(value, libcst.Lambda):
            self._require_constant_defaults(value.params)
            return
        if not isinstance(value, libcst.Call):
            raise EditImpossible(f"`{code_of(value)}` may be a different one each time")
        wraps = self.scope.imported_name(value.func) in _WRAPPERS
        if not wraps and not self._is_factory(value.func):
            raise EditImpossible(f"`{code_of(value.func)}` may do more than make a function")
        for argument in value.args:
            if argument.star or not self._is_same_argument(argument.value):
                raise EditImpossible(
                    f"`{code_of(argument.value)}` may be a different one each time"
                )

    def _is_same_argument(self, value: libcst.BaseExpression) -> bool:
        if _is_constant(value) or isinstance(value, libcst.Name):
            return True
        if isinstance(value, (libcst.Lambda, libcst.Call)):
            self._require_same_made(value)
            return True
        return self.scope.imported_name(value) is not None

    def _is_factory(self, function: libcst.BaseExpression) -> bool:
        """A function of the file that only defines functions and returns one: it keeps no state of
        its own."""
        source = self.scope.source
        found = [
            each
            for each in source.below(source.module, libcst.FunctionDef)
            if source.parent(each) is source.module and each.name.value == code_of(function)
        ]
        if (
            len(found) != 1
            or found[0].decorators
            or isinstance(found[0].body, libcst.SimpleStatementSuite)
        ):
            return False
        body = [each for each in found[0].body.body if not matchers.matches(each, _DOCSTRING)]
        inner = [each for each in body if isinstance(each, libcst.FunctionDef)]
        shared = any(True for _ in source.below(found[0], libcst.Nonlocal))
        last = body[-1] if body else None
        returned = matchers.SimpleStatementLine(body=[matchers.Return(value=matchers.Name())])
        plain = not shared and not any(each.decorators for each in inner)
        return (
            plain
            and len(inner) == len(body) - 1
            and last is not None
            and matchers.matches(last, returned)
        )

    def _require_constant_defaults(self, parameters: libcst.Parameters) -> None:
        listed = (*parameters.posonly_params, *parameters.params, *parameters.kwonly_params)
        for each in listed:
            if each.default is not None and not _is_constant(each.default):
                raise EditImpossible(f"the default of `{each.name.value}` is not a constant")

    def _require_same_class(self, made: libcst.ClassDef) -> None:
        name = made.name.value
        for decorator in made.decorators:
            whole = decorator.decorator
            function = whole.func if isinstance(whole, libcst.Call) else whole
            if self.scope.imported_name(function) not in _CLASS_DECORATORS:
                raise EditImpossible(f"`{name}` is decorated")
        for statement in made.body.body:
            if isinstance(statement, libcst.FunctionDef):
                known = all(_is_known(each) for each in statement.decorators)
                if not known:
                    raise EditImpossible(f"`{statement.name.value}` is decorated")
                self._require_constant_defaults(statement.params)
            elif not _is_plain_member(statement):
                first = code_of(statement).strip().splitlines()[0]
                raise EditImpossible(f"`{first}` of {name} may be a different one each time")

    def _require_bound_before(self, made: libcst.CSTNode) -> None:
        """What is read when it is made must have its value, and keep it."""
        source = self.scope.source
        if changed := free_names(source, made) & set(written_in(source, self.outer)):
            raise EditImpossible(f"`{min(changed)}` is changed where it is used")
        at_once = free_names(source, made, at_once=True)
        shared = [
            item.name.value
            for kind in (libcst.Global, libcst.Nonlocal)
            for each in source.below(source.module, kind)
            for item in each.names
        ]
        if elsewhere := at_once & {*shared}:
            raise EditImpossible(f"`{min(elsewhere)}` is changed elsewhere")
        if not isinstance(self.outer, libcst.FunctionDef):
            return
        first, bound = source.position(self.outer), list(bound_in(source, source.module))
        for name in at_once:
            later = [
                each
                for each in _makers_in(source, source.module)
                if _name_of(each) == name and source.position(each) > first
            ]
            if later or bound.count(name) > 1:
                raise EditImpossible(f"`{name}` is made later, or more than once")

    def _require_used_only(self, statement: _Made, moved: Sequence[_Made]) -> None:
        """Nothing else may see that it is one object now: it is called, or passed in the call."""
        source, name = self.scope.source, _name_of(statement)
        whole = next(source.around(statement, libcst.FunctionDef), source.module)
        if isinstance(self.outer, libcst.FunctionDef):
            everywhere = sum(
                each.value == name for each in source.below(source.module, libcst.Name)
            )
            if everywhere != sum(each.value == name for each in source.below(whole, libcst.Name)):
                raise EditImpossible(f"the file has another `{name}`")
        for node in uses_of(source, whole, name):
            around = list(source.around(node, libcst.CSTNode))
            if any(each in around for each in moved):
                continue
            parent = source.parent(node)
            is_called = isinstance(parent, libcst.Call) and parent.func is node
            is_passed = isinstance(parent, libcst.Arg) and (
                source.parent(parent) is self.call or parent.keyword is node
            )
            if not is_called and not is_passed:
                line = source.lines_of(node).start
                raise EditImpossible(f"line {line} does more with `{name}` than pass or call it")


def _is_constant(value: libcst.BaseExpression) -> bool:
    plain = isinstance(value, (libcst.SimpleString, libcst.Ellipsis)) or is_number(value)
    return plain or (isinstance(value, libcst.Name) and value.value in ("None", "True", "False"))


def _is_known(decorator: libcst.Decorator) -> bool:
    return code_of(decorator.decorator) in _METHOD_DECORATORS


def _is_plain_member(statement: libcst.CSTNode) -> bool:
    """A docstring, `pass`, an annotation, or a constant."""
    if matchers.matches(statement, _DOCSTRING | _PASS):
        return True
    if not isinstance(statement, libcst.SimpleStatementLine) or len(statement.body) != 1:
        return False
    small = statement.body[0]
    if isinstance(small, libcst.AnnAssign):
        return small.value is None or _is_constant(small.value)
    return isinstance(small, libcst.Assign) and _is_constant(small.value)


def _comments(statement: _Made) -> list[libcst.EmptyLine]:
    return [each for each in statement.leading_lines if each.comment is not None]


def _removed(_: libcst.CSTNode) -> libcst.RemovalSentinel:
    return libcst.RemoveFromParent()


@dataclass(frozen=True)
class _Put:
    node: libcst.BaseExpression

    def __call__(self, _: libcst.CSTNode) -> libcst.BaseExpression:
        return self.node


@dataclass(frozen=True)
class _Before:
    """Statements in front of a loop or function, and below the comments of neither."""

    statements: tuple[_Made, ...]

    def __call__(
        self, node: libcst.For | libcst.While | libcst.FunctionDef
    ) -> libcst.FlattenSentinel[libcst.BaseStatement]:
        above = [each for each in node.leading_lines if each.comment is None]
        rest = [each for each in node.leading_lines if each.comment is not None]
        first, *others = self.statements
        first = first.with_changes(leading_lines=[*above, *first.leading_lines])
        gap = above if isinstance(node, libcst.FunctionDef) else []
        return libcst.FlattenSentinel(
            [first, *others, node.with_changes(leading_lines=[*gap, *rest])]
        )
