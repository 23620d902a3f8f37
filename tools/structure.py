"""Measures the structure of both packages: lines, files, rooms, arrows between rooms, circles.

    python tools/structure.py [CHECKOUT]

A room is a folder of a package, an extension, or a module at its top. An arrow is an import from
one room to another, however often; a circle is a group of rooms that reach each other. The longest
chain counts modules, each importing the next when it is imported itself (imports in functions do
not count).
"""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

PACKAGES = {"compilediag": "compilediag", "compilediag_harness": "harness/compilediag_harness"}


def main() -> int:
    """Prints one figure a line."""
    root = Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).resolve().parent.parent
    modules = dict(_modules(root))
    trees = {name: ast.parse(path.read_text(encoding="utf-8")) for name, path in modules.items()}
    rooms = {name: _room(name, path) for name, path in modules.items()}
    arrows = {
        (rooms[name], rooms[other])
        for name, tree in trees.items()
        for other in _imports(tree, name, modules, anywhere=True)
        if rooms[name] != rooms[other]
    }
    at_import = {name: set(_imports(tree, name, modules)) for name, tree in trees.items()}
    lines = {name: path.read_text(encoding="utf-8").count("\n") for name, path in modules.items()}
    outer = sum(count for name, count in lines.items() if "extensions" in name.split("."))
    print(f"lines            {sum(lines.values()):,}, of which extensions {outer:,}")
    print(f"files            {len(modules)}")
    print(f"rooms            {len(set(rooms.values()))}")
    print(f"arrows           {len(arrows)}")
    print(f"circles of rooms {_circles(arrows)}")
    print(f"longest chain    {_longest_chain(at_import)} modules")
    return 0


def _modules(root: Path) -> Iterator[tuple[str, Path]]:
    for package, folder in PACKAGES.items():
        for path in sorted((root / folder).rglob("*.py")):
            parts = path.relative_to(root / folder).with_suffix("").parts
            yield ".".join([package, *(part for part in parts if part != "__init__")]), path


def _room(name: str, path: Path) -> str:
    parts = name.split(".")
    folders = parts if path.stem == "__init__" else parts[:-1]
    if "extensions" in folders:
        return ".".join(parts[:3])
    return ".".join(folders[:2] if len(folders) > 1 else parts[:2])


def _imports(
    tree: ast.Module, importer: str, modules: dict[str, Path], *, anywhere: bool = False
) -> Iterator[str]:
    nodes = ast.walk(tree) if anywhere else _at_top(tree)
    for node in nodes:
        names: list[str] = []
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module:
            names = [f"{node.module}.{alias.name}" for alias in node.names]
        for name in names:
            found = name if name in modules else name.rpartition(".")[0]
            if found in modules and found != importer:
                yield found


def _at_top(tree: ast.Module) -> Iterator[ast.AST]:
    """Statements that run at import; not those for type checkers alone."""
    for node in tree.body:
        if isinstance(node, ast.Try):
            yield from node.body
        elif not (isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test)):
            yield node


def _circles(arrows: set[tuple[str, str]]) -> int:
    """Groups of two rooms or more that reach each other."""
    rooms = {room for arrow in arrows for room in arrow}
    reached = {room: _reached(room, arrows) for room in rooms}
    groups = {
        frozenset({room, *(other for other in reached[room] if room in reached[other])})
        for room in rooms
    }
    return sum(len(group) > 1 for group in groups)


def _reached(room: str, arrows: set[tuple[str, str]]) -> set[str]:
    found: set[str] = set()
    ahead = [room]
    while ahead:
        here = ahead.pop()
        for start, end in arrows:
            if start == here and end not in found:
                found.add(end)
                ahead.append(end)
    return found


def _longest_chain(imports: dict[str, set[str]]) -> int:
    try:
        order = list(TopologicalSorter(imports).static_order())
    except CycleError as error:
        print(f"modules import each other: {' -> '.join(error.args[1])}")
        return 0
    depth: dict[str, int] = {}
    for name in order:
        depth[name] = 1 + max((depth[other] for other in imports[name]), default=0)
    return max(depth.values())


if __name__ == "__main__":
    sys.exit(main())
