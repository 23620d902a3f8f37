"""Follows the line of a proved change as a reader would, and lets torch count.

The text of the line and the patch are all that is used: lines for the shell go to a shell, settings
to the program's top, marks before the call that the line names, options into each call of
`torch.compile`, edits through `git apply`. The program then runs without compilediag, under the
oracle of the tests, which reads torch's own counters. A line that does not say where it belongs
cannot be followed, and this is reported.
"""

from __future__ import annotations

import ast
import json
import math
import os
import re
import shlex
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

PROGRAM = "broken.py"
ORACLE = Path(__file__).resolve().parents[2] / "tests" / "support" / "oracle.py"
LIMIT_S = 900

COUNTED = {
    "recompiles": "recompiles",
    "graph breaks": "graph_breaks",
    "eager fallbacks": "eager_fallbacks",
    "recompile limit hits": "recompile_limit_hits",
}
"""Figures of a certificate, and what torch counts of the same."""

_AT = re.compile(
    r"(?P<code>.+?)  # (?P<where>before|after) the call, (?P<file>\S+):(?P<line>\d+)"
    r"(?P<passing>, passing given.*)?"
)
_PLACE = r"(?P<file>\S+):(?P<line>\d+)"
_CALL = re.compile(rf"(?P<code>.+?)  # at the call, {_PLACE}")
_COMPILED = re.compile(
    r"(?P<code>(?P<name>\w+) = compilediag\.FixedShape\(.+\))  # where it is compiled"
)
_SETTING = re.compile(r"(?P<option>torch(?:\.\w+)+) = (?P<value>.+)")
_OPTION = re.compile(r"torch\.compile\(\.\.\., (?P<option>\w+=.+)\)")


class CannotFollow(Exception):
    """The line does not say what to write, or where; the message says which."""


@dataclass(frozen=True, slots=True)
class Counted:
    """One plain run."""

    exit_code: int
    counts: Mapping[str, int]
    printed: tuple[str, ...]


def counted(
    folder: Path, report: Path, exports: Sequence[str], environ: Mapping[str, str]
) -> Counted:
    """Runs the program of a folder from a shell, and returns what torch counted."""
    command = shlex.join([sys.executable, str(ORACLE), str(report), PROGRAM])
    done = subprocess.run(
        ["sh", "-c", "\n".join([*exports, f"exec {command}"])],
        cwd=folder,
        env=dict(environ),
        capture_output=True,
        text=True,
        timeout=LIMIT_S,
        check=False,
    )
    if not report.is_file():  # the program ended its process itself
        return Counted(done.returncode or 1, {}, ())
    found = json.loads(report.read_text(encoding="utf-8"))
    return Counted(found["exit_code"], found["counts"], find_results(done.stdout))


_NUMBER = r"[-+]?(?:\d+\.?\d*(?:[eE][-+]?\d+)?|\.\d+(?:[eE][-+]?\d+)?|nan|inf)"
_LOSS = re.compile(rf"\b[\w./]*loss\b\W{{0,3}}({_NUMBER})\b", re.IGNORECASE)
_TOKENS = re.compile(rf"(?<![\w.]){_NUMBER}(?![\w.])")

_RELATIVE, _ABSOLUTE = 1e-4, 1e-5
"""What is printed is rounded, four digits after the point most often."""


def find_results(output: str) -> tuple[str, ...]:
    """Find the results in a program's output, in their order."""
    results: list[str] = []
    for line in output.splitlines():
        if line.lstrip().startswith("RESULT"):
            results.append(line.strip())
        else:
            results += [f"loss {number}" for number in _LOSS.findall(line)]
    return tuple(results)


def is_same_result(before: str, after: str) -> bool:
    """True where two results are equal but for the rounding of their numbers."""
    if _TOKENS.sub("#", before) != _TOKENS.sub("#", after):
        return False
    pairs = zip(_TOKENS.findall(before), _TOKENS.findall(after), strict=True)
    numbers = [(float(old), float(new)) for old, new in pairs]
    return all(
        math.isclose(old, new, rel_tol=_RELATIVE, abs_tol=_ABSOLUTE)
        or (math.isnan(old) and math.isnan(new))
        for old, new in numbers
    )


def check(proof: Mapping[str, Any], before: Counted, after: Counted) -> list[str]:
    """What torch's counters say against a certificate, in sentences."""
    if not before.counts or not after.counts:
        return [f"the plain run gives no counts (exit codes {before.exit_code}, {after.exit_code})"]
    found: list[str] = []
    if after.exit_code != before.exit_code:
        found.append(f"exit code {before.exit_code} → {after.exit_code}")
    points = {point["name"]: point["figures"] for point in proof["points"]}
    figures = {item["name"]: item for item in points.get("better", ())}
    for name, counter in COUNTED.items():
        if name not in figures:  # it is not about what torch counts
            continue
        stated = figures[name]["before"], figures[name]["after"]
        seen = before.counts[counter], after.counts[counter]
        # The certificate may be of further changes too.
        if seen[0] != stated[0] or seen[1] > stated[1]:
            shown = [f"{old:g} → {new:g}" for old, new in (stated, seen)]
            found.append(f"{name}: the certificate has {shown[0]}, torch counts {shown[1]}")
    if not after.counts["graphs"]:
        found.append("nothing is compiled")
    same = len(before.printed) == len(after.printed) and all(
        map(is_same_result, before.printed, after.printed)
    )
    if not same:
        found.append("different results are printed")
    return found


def followed(proof: Mapping[str, Any], folder: Path) -> list[str]:
    """Makes a proved change in the copy of a program; returns the lines for the shell.

    Raises:
        CannotFollow: the line does not say what to write, or where.
    """
    line: str = proof["change"]
    if proof.get("patch"):
        _patched(proof["patch"], folder)
        return []
    if line.startswith("export "):
        return [line]
    for pattern, write in ((_AT, _around), (_CALL, _with_call)):
        if found := pattern.fullmatch(line):
            place = folder / found["file"]
            if not place.is_file():
                raise CannotFollow(f"{found['file']} is no file of the program")
            _edit(place, partial(write, found))
            return []
    if found := _COMPILED.fullmatch(line):
        _edit(folder / PROGRAM, partial(_behind, found))
    elif found := _SETTING.fullmatch(line):
        _edit(folder / PROGRAM, partial(_with_setting, found))
    elif found := _OPTION.fullmatch(line):
        _edit(folder / PROGRAM, lambda text: _with_option(text, found["option"]))
    else:
        raise CannotFollow("the line does not say where it is written")
    return []


def _patched(patch: str, folder: Path) -> None:
    done = subprocess.run(
        ["git", "apply", "-"],
        input=patch,
        cwd=folder,
        env={**os.environ, "GIT_CEILING_DIRECTORIES": str(folder.resolve().parent)},
        text=True,
        capture_output=True,
        check=False,
    )
    if done.returncode:
        raise CannotFollow(f"the patch does not apply: {done.stderr.strip()}")


def _edit(path: Path, change: Callable[[str], str]) -> None:
    path.write_text(change(path.read_text(encoding="utf-8")), encoding="utf-8")


def _around(found: re.Match[str], text: str) -> str:
    """The code on a line of its own, before or after the innermost statement of the place."""
    innermost = _innermost(text, int(found["line"]))
    if found["passing"]:
        text = _passing(text, innermost, found["code"])
    lines = text.splitlines(keepends=True)
    at = innermost.lineno - 1 if found["where"] == "before" else innermost.end_lineno or 0
    lines.insert(at, f"{' ' * innermost.col_offset}{found['code']}\n")
    return _at_top("".join(lines), "import torch")


def _innermost(text: str, number: int) -> ast.stmt:
    around = [
        node
        for node in ast.walk(ast.parse(text))
        if isinstance(node, ast.stmt) and node.lineno <= number <= (node.end_lineno or 0)
    ]
    if not around:
        raise CannotFollow(f"there is no statement on line {number}")
    return max(around, key=lambda node: (node.lineno, -(node.end_lineno or 0)))


def _passing(text: str, statement: ast.stmt, code: str) -> str:
    """The statement with the variables that the code assigns in place of what they hold."""
    for assigned in ast.parse(code).body:
        if isinstance(assigned, ast.Assign):
            wanted = ast.dump(assigned.value)
            same = [
                each
                for call in ast.walk(statement)
                if isinstance(call, ast.Call)
                for each in (*call.args, *(keyword.value for keyword in call.keywords))
                if ast.dump(each) == wanted
            ]
            if len(same) != 1:
                raise CannotFollow(f"the call does not pass {ast.unparse(assigned.value)} once")
            # Later ones on the line would move: the text is parsed again for each.
            text = _replaced(text, same[0], ast.unparse(assigned.targets[0]))
            statement = _innermost(text, statement.lineno)
    return text


def _with_call(found: re.Match[str], text: str) -> str:
    """The call of the same function on the line, as the change writes it."""
    wanted = ast.parse(found["code"], mode="eval").body
    calls = [
        node
        for node in ast.walk(ast.parse(text))
        if isinstance(node, ast.Call) and node.lineno <= int(found["line"]) <= _end(node)
    ]
    same = [
        node
        for node in calls
        if isinstance(wanted, ast.Call) and ast.unparse(node.func) == ast.unparse(wanted.func)
    ]
    if len(same) != 1:
        raise CannotFollow(f"line {found['line']} has not one such call")
    return _at_top(_replaced(text, same[0], found["code"]), "import torch")


def _behind(found: re.Match[str], text: str) -> str:
    """The line behind the statement that compiles what it wraps."""
    made = [
        node
        for node in ast.parse(text).body
        if (isinstance(node, ast.FunctionDef) and node.name == found["name"])
        or (isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == found["name"])
    ]
    if len(made) != 1:
        raise CannotFollow(f"{found['name']} is not made at one place")
    lines = text.splitlines(keepends=True)
    lines.insert(_end(made[0]), f"\n\n{found['code']}\n")
    return _at_top("".join(lines), "import compilediag")


def _end(node: ast.expr | ast.stmt) -> int:
    return node.end_lineno or node.lineno


def _replaced(text: str, node: ast.expr, code: str) -> str:
    """The text with other code in place of an expression; columns count bytes."""
    lines = [line.encode() for line in text.splitlines(keepends=True)]
    last = _end(node)
    before = b"".join(lines[: node.lineno - 1]) + lines[node.lineno - 1][: node.col_offset]
    after = lines[last - 1][node.end_col_offset :] + b"".join(lines[last:])
    return (before + code.encode() + after).decode()


def _with_setting(found: re.Match[str], text: str) -> str:
    named = {node.id for node in ast.walk(ast.parse(found["value"])) if isinstance(node, ast.Name)}
    modules = [found["option"].rpartition(".")[0], *sorted(named & sys.stdlib_module_names)]
    added = [*(f"import {name}" for name in modules), found[0]]
    if "# below the imports" in found[0]:
        imports = [each for each in ast.parse(text).body if _is_import(each)]
        return _behind_line(text, _end(imports[-1]), *added)
    return _at_top(text, *added)


def _is_import(node: ast.stmt) -> bool:
    return isinstance(node, (ast.Import, ast.ImportFrom))


def _at_top(text: str, *added: str) -> str:
    """Lines behind the first import of torch."""
    for node in ast.parse(text).body:
        modules = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
        modules += [node.module or ""] if isinstance(node, ast.ImportFrom) else []
        if any(module.partition(".")[0] == "torch" for module in modules):
            return _behind_line(text, _end(node), *added)
    raise CannotFollow("the program does not import torch at its top")


def _behind_line(text: str, at: int, *added: str) -> str:
    lines = text.splitlines(keepends=True)
    return "".join([*lines[:at], *(f"{line}\n" for line in added), *lines[at:]])


def _with_option(text: str, option: str) -> str:
    """The option in every call of torch.compile, and in each decorator without a call."""
    options = _Options(option)
    tree = ast.fix_missing_locations(options.visit(ast.parse(text)))
    if not options.added:
        raise CannotFollow("the program has no call of torch.compile")
    return f"{ast.unparse(tree)}\n"


def _is_method_compile(node: ast.Call) -> bool:
    """`module.compile(...)`, which takes the options of `torch.compile`."""
    named = isinstance(node.func, ast.Attribute) and node.func.attr == "compile"
    return named and ast.unparse(node.func).partition(".")[0] not in sys.stdlib_module_names


class _Options(ast.NodeTransformer):
    """Adds a keyword to each call of torch.compile; a bare decorator becomes a call."""

    def __init__(self, option: str) -> None:
        call = ast.parse(f"torch.compile({option})", mode="eval").body
        assert isinstance(call, ast.Call)
        self.added = 0
        self._bare, self._keyword = call, call.keywords[0]

    def visit_Call(self, node: ast.Call) -> ast.AST:
        self.generic_visit(node)
        if ast.unparse(node.func) == "torch.compile" or _is_method_compile(node):
            node.keywords = [each for each in node.keywords if each.arg != self._keyword.arg]
            node.keywords.append(self._keyword)
            self.added += 1
        return node

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.AST:
        bare = [ast.unparse(each) == "torch.compile" for each in node.decorator_list]
        self.generic_visit(node)
        self.added += sum(bare)
        node.decorator_list = [
            self._bare if is_bare else each
            for each, is_bare in zip(node.decorator_list, bare, strict=True)
        ]
        return node
