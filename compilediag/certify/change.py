"""The change between two states of a program's sources: its digests, and its lines that can run."""

from __future__ import annotations

import ast
import hashlib
import tokenize
from collections.abc import Iterable, Iterator, Mapping, Set
from dataclasses import dataclass
from difflib import SequenceMatcher
from types import CodeType

from compilediag_harness.wire import WatchedLines

_NEVER_TRUE = ("TYPE_CHECKING", "typing.TYPE_CHECKING")
"""Conditions of code that is there for type checkers alone."""

_CONDITIONAL = (ast.If, ast.For, ast.AsyncFor, ast.While, ast.Match)
"""Statements whose blocks need not run."""

_SIZES = ("shape", "size", "numel", "ndim", "dim")
"""Attributes of a tensor that say how large it is."""


@dataclass(frozen=True, slots=True)
class ChangedFile:
    """A Python file of the new state that differs from that of the old one, or is new."""

    file: str
    lines: tuple[int, ...]  #: New or other lines of the new text that can run.
    removed: tuple[tuple[int, ...], ...] = ()  #: Of each place where code was only removed, the
    #: lines beside it; one of them has to run.
    branches: tuple[tuple[int, int], ...] = ()  #: First lines of blocks of the old text that are
    #: gone, or whose condition is another one, each after that of its function (0: the module). Of
    #: an `if` without `else`, -30 is the way past it, whose condition is at line 30.
    uncounted: frozenset[str] = frozenset()  #: Attributes that the old text updates from what
    #: they were, as a counter, and the new one does not.
    sizes: tuple[int, ...] = ()  #: Lines of the old text that are gone and read a size of a tensor,
    #: where the new text reads fewer.
    writes_otherwise: bool = False  #: Other statements write to attributes or globals than before.


@dataclass(frozen=True, slots=True)
class Change:
    """Two states of a program's sources, by path as processes load them, and how they differ."""

    files: tuple[ChangedFile, ...]
    before: Mapping[str, str]  #: SHA-256 of each source of the old state.
    after: Mapping[str, str]  #: The same of the new state.
    others: tuple[str, ...] = ()  #: What changed beside sources, in words: lines of environment.

    @property
    def watched(self) -> tuple[WatchedLines, ...]:
        """The lines of the new state whose execution the certificate asks for."""
        return tuple(
            WatchedLines(file.file, tuple(sorted({*file.lines, *sum(file.removed, ())})))
            for file in self.files
        )

    @property
    def watched_before(self) -> tuple[WatchedLines, ...]:
        """The lines of the old state."""
        lines = {its.file: {*sum(its.branches, ())} - {0} for its in self.files if its.branches}
        return tuple(WatchedLines(file, tuple(sorted(its))) for file, its in lines.items())


def compare_sources(
    before: Mapping[str, bytes], after: Mapping[str, bytes], others: tuple[str, ...] = ()
) -> Change:
    """Compare the contents of the Python sources of two states, by path as processes load them.
    A path that one state lacks is a file that it does not have. `others`: see `Change`."""
    files = [
        _compare_texts(path, before.get(path, b""), text)
        for path, text in sorted(after.items())
        if before.get(path) != text
    ]
    digests = [
        {path: hashlib.sha256(text).hexdigest() for path, text in state.items()}
        for state in (before, after)
    ]
    gone = (f"{path} is removed" for path in sorted(before.keys() - after.keys()))
    return Change(tuple(files), digests[0], digests[1], (*others, *gone))


def _compare_texts(path: str, old: bytes, new: bytes) -> ChangedFile:
    # Other ends of lines are no other code.
    old_lines, new_lines = ([x.rstrip(b"\r") for x in its.split(b"\n")] for its in (old, new))
    try:
        tree = ast.parse(new)
        old_tree = ast.parse(old)
        was, runnable = _find_runnable(old_tree, old), _find_runnable(tree, new)
        if ast.dump(old_tree) == ast.dump(tree):
            return ChangedFile(path, ())
    except (SyntaxError, ValueError):  # the program says so itself
        return ChangedFile(path, tuple(range(1, len(new_lines) + 1)))
    lines = set[int]()
    removed: list[tuple[int, ...]] = []
    gone, inner = set[int](), set[int]()
    matcher = SequenceMatcher(None, old_lines, new_lines, autojunk=False)
    for kind, start, end, first, last in matcher.get_opcodes():
        if kind == "equal":
            continue
        changed = {runnable[line] for line in range(first + 1, last + 1) if line in runnable}
        lines |= changed
        texts = {line: old_lines[line - 1] for line in range(start + 1, end + 1)}
        is_else = {line for line, text in texts.items() if text.lstrip().startswith(b"else")}
        texts = {line: text for line, text in texts.items() if line in was or line in is_else}
        indents = {line: len(text) - len(text.lstrip()) for line, text in texts.items()}
        least = min(indents.values(), default=0)
        gone |= texts.keys()
        inner |= {line for line in texts if indents[line] > least}
        if texts and not changed:
            removed.append(_find_neighbours(tree, first, last, least))
    branches = sorted({*_iterate_branches(old_tree.body, was, gone, inner)})
    uncounted = frozenset(_iterate_counted(old_tree)) - {*_iterate_counted(tree)}
    sizes, left = _list_size_reads(old_tree), _list_size_reads(tree)
    unread = tuple(line for line in sizes if line in gone and len(sizes) > len(left))
    return ChangedFile(
        path,
        tuple(sorted(lines)),
        tuple(removed),
        tuple(branches),
        uncounted,
        unread,
        _list_writes(old_tree) != _list_writes(tree),
    )


def _list_size_reads(tree: ast.Module) -> list[int]:
    """List the lines of all reads of a size of a tensor."""
    return sorted(
        node.lineno
        for node in ast.walk(tree)
        if isinstance(node, ast.Attribute) and node.attr in _SIZES
    )


def _list_writes(tree: ast.Module) -> list[str]:
    """List the statements that write to what other code may read: attributes and globals."""
    declared = (node for node in ast.walk(tree) if isinstance(node, (ast.Global, ast.Nonlocal)))
    names = {name for node in declared for name in node.names}
    return sorted(
        ast.unparse(statement)
        for statement in ast.walk(tree)
        if isinstance(statement, (ast.Assign, ast.AugAssign, ast.AnnAssign))
        for node in ast.walk(statement)
        if isinstance(node, (ast.Attribute, ast.Name)) and isinstance(node.ctx, ast.Store)
        if isinstance(node, ast.Attribute) or node.id in names
    )


def _iterate_branches(
    block: list[ast.stmt], was: Mapping[int, int], gone: Set[int], inner: Set[int], entry: int = 0
) -> Iterator[tuple[int, int]]:
    """Iterate over what `ChangedFile.branches` holds. Not over a block that ends by raising, as a
    check that never failed, nor one that handles an error. `was`: lines that can run; `inner`:
    those that are gone and deeper than others beside them; `entry`: of the function."""
    for statement in block:
        blocks = [getattr(statement, name, []) for name in ("body", "orelse", "finalbody")]
        blocks += [case.body for case in getattr(statement, "cases", ())]
        blocks = [its for its in blocks if its]
        if isinstance(statement, (ast.FunctionDef, ast.AsyncFunctionDef)):
            begin = _find_first(statement.body, was)
            yield from _iterate_branches(statement.body, was, gone, inner, begin)
            continue
        start, is_other = statement.lineno, False
        for part in blocks:
            head = range(start, part[0].lineno)  # the condition, `else`
            is_other = is_other or (part is blocks[0] and not gone.isdisjoint(head))
            ends_here = isinstance(statement, ast.If) and not statement.orelse
            if is_other and ends_here and not isinstance(part[-1], ast.Raise):
                yield entry, -statement.lineno
            start = (part[-1].end_lineno or 0) + 1
            if isinstance(part[-1], ast.Raise):
                continue
            ends = {line for its in part for line in (its.lineno, its.end_lineno)}
            touched = is_other or not (inner.isdisjoint(ends) and gone.isdisjoint(head))
            if touched and isinstance(statement, _CONDITIONAL):
                yield entry, _find_first(part, was)
            yield from _iterate_branches(part, was, gone, inner, entry)


def _find_first(block: list[ast.stmt], runnable: Mapping[int, int]) -> int:
    """Find the first line of a block that the interpreter reports."""
    last = block[-1].end_lineno or 0
    return next((runnable[n] for n in range(block[0].lineno, last + 1) if n in runnable), 0)


def _iterate_counted(tree: ast.Module) -> Iterator[str]:
    """Iterate over the names of the attributes that are updated from what they were."""
    for node in ast.walk(tree):
        match node:
            case ast.AugAssign(target=ast.Attribute(attr=name)):
                yield name
            case ast.Call(func=ast.Attribute(value=ast.Attribute(attr=name), attr=method)):
                yield from [name] * method.endswith("_")  # in place, as by `add_`
            case ast.Assign(targets=[ast.Attribute(attr=name)], value=value):
                read = {its.attr for its in ast.walk(value) if isinstance(its, ast.Attribute)}
                yield from read & {name}
            case _:
                pass


def _find_runnable(tree: ast.Module, text: bytes) -> dict[int, int]:
    """Find the lines with code that can run, and for each the line that the interpreter reports
    when it does: the elements of a constant tuple have none of their own."""
    reported = set(_iterate_code_lines(compile(tree, "", "exec", dont_inherit=True)))
    lines = text.decode("utf-8", "replace").split("\n")
    written = set[int]()
    blank = (tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT)
    for token in tokenize.generate_tokens((f"{line}\n" for line in lines).__next__):
        if token.type not in blank and token.type != tokenize.ENDMARKER:
            written.update(range(token.start[0], token.end[0] + 1))
    found: dict[int, int] = {}
    for statement in ast.walk(tree):  # outer ones first: inner ones say it again
        if not isinstance(statement, ast.stmt):
            continue
        span = range(statement.lineno, (statement.end_lineno or statement.lineno) + 1)
        near = sorted(line for line in span if line in reported)
        for line in span:
            found.pop(line, None)
            if near and line in written and not _is_inert(statement):
                found[line] = next((other for other in near if other >= line), near[-1])
        decorators: list[ast.expr] = getattr(statement, "decorator_list", [])
        found.update({line.lineno: line.lineno for line in decorators})
    for statement in ast.walk(tree):
        if isinstance(statement, ast.If) and ast.unparse(statement.test) in _NEVER_TRUE:
            for line in range(statement.lineno, (statement.body[-1].end_lineno or 0) + 1):
                found.pop(line, None)
    return found


def _iterate_code_lines(code: CodeType) -> Iterator[int]:
    if code.co_name == "__annotate__":
        return
    yield from (line for _, _, line in code.co_lines() if line)
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _iterate_code_lines(constant)


def _is_inert(statement: ast.stmt) -> bool:
    """True for a docstring, and any other text that stands alone."""
    if not isinstance(statement, ast.Expr) or not isinstance(statement.value, ast.Constant):
        return False
    return isinstance(statement.value.value, str)


def _find_neighbours(tree: ast.Module, first: int, last: int, indent: int) -> tuple[int, ...]:
    """Find the statements of the same block right before and after lines of the new text, counted
    from 0; where there are none, the nearest ones of the block around."""
    starts = {
        node.lineno: node.col_offset
        for node in ast.walk(tree)
        if isinstance(node, ast.stmt) and not _is_inert(node)
    }
    before = _walk_block(sorted((line for line in starts if line <= first), reverse=True), starts)
    after = _walk_block(sorted(line for line in starts if line > last), starts)
    for level in sorted({indent, *range(indent)}, reverse=True):
        near = tuple(side[level] for side in (before, after) if level in side)
        if near:
            return near
    return ()


def _walk_block(lines: Iterable[int], starts: Mapping[int, int]) -> dict[int, int]:
    """Walk over lines by their distance: the nearest of each indentation, nothing outer between."""
    nearest: dict[int, int] = {}
    least = None
    for line in lines:
        if least is None or starts[line] <= least:
            least = starts[line]
            nearest.setdefault(least, line)
    return nearest
