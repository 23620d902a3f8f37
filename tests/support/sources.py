"""The product's modules as text, and what each imports: nothing of them is executed."""

import ast
import functools
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


@dataclass(frozen=True)
class Source:
    """A module's dotted name and its text."""

    name: str
    text: str

    @property
    def tree(self) -> ast.Module:
        return _parsed(self.text)

    @property
    def nodes(self) -> tuple[ast.AST, ...]:
        """Every node of the tree: walked once, as many checks look at each."""
        return _walked(self.text)


@functools.cache
def _parsed(text: str) -> ast.Module:
    return ast.parse(text)


@functools.cache
def _walked(text: str) -> tuple[ast.AST, ...]:
    return tuple(ast.walk(_parsed(text)))


@dataclass(frozen=True)
class Import:
    """One imported module, or a name of one: `from a import b` gives "a.b" with `base` "a"."""

    name: str
    base: str
    line: int
    at_top: bool


@functools.cache
def project() -> tuple[Source, ...]:
    """Every module of both packages."""
    return tuple(_project())


def _project() -> Iterator[Source]:
    for package in (ROOT / "compilediag", ROOT / "harness" / "compilediag_harness"):
        for path in sorted(package.rglob("*.py")):
            parts = path.relative_to(package.parent).with_suffix("").parts
            name = ".".join(parts[:-1] if parts[-1] == "__init__" else parts)
            yield Source(name, path.read_text(encoding="utf-8"))


@functools.cache
def imports(source: Source) -> tuple[Import, ...]:
    """Every import of a module, in functions and under TYPE_CHECKING too, and `import_module`."""
    return tuple(_imports(source))


def _imports(source: Source) -> Iterator[Import]:
    for node, at_top in placed(source.tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield Import(alias.name, alias.name, node.lineno, at_top)
        elif isinstance(node, ast.ImportFrom):
            base = node.module or ""
            if node.level:
                base = ".".join(filter(None, [*source.name.split(".")[: -node.level], base]))
            for alias in node.names:
                yield Import(f"{base}.{alias.name}", base, node.lineno, at_top)
        elif isinstance(node, ast.Call) and node.args:
            called = node.func.attr if isinstance(node.func, ast.Attribute) else ""
            called = node.func.id if isinstance(node.func, ast.Name) else called
            target = node.args[0]
            if called in {"import_module", "__import__"} and isinstance(target, ast.Constant):
                yield Import(str(target.value), str(target.value), node.lineno, at_top)


def placed(tree: ast.Module) -> Iterator[tuple[ast.AST, bool]]:
    """Every node, and whether it stands outside every function."""
    found: deque[tuple[ast.AST, bool]] = deque([(tree, True)])
    while found:
        node, at_top = found.popleft()
        yield node, at_top
        outside = at_top and not isinstance(
            node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda
        )
        found.extend((child, outside) for child in ast.iter_child_nodes(node))
