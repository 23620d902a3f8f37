"""Ratchets: numbers of the repository's shape that may only fall, each with its goal.

    python tests/support/ratchets.py [--raise NAME...]

`make ratchets` prints every number and lowers those stored in `tests/data/ratchets.json` that fell;
`--raise` also stores one that rose. `tests/unit/test_ratchets.py` fails where one is above its
stored value. What is stored is what was counted, by name, so that a failure says what is new.
"""

import argparse
import ast
import json
import re
import sys
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping
from itertools import combinations
from pathlib import Path
from typing import NamedTuple

import click
from sources import ROOT, Source, imports, project

from compilediag.cli import load_command

STORED = ROOT / "tests" / "data" / "ratchets.json"

Amounts = Mapping[str, int]
"""What was counted, by what it was counted in: 1 for a pair or a module, lines for a folder."""

NAMELESS = frozenset(("What", "Which", "Whether", "How", "Where", "Why", "Whose", "Of", "From"))
PREDICATES = frozenset(
    ("is", "has", "can", "should", "was", "are", "may", "did", "needs", "contains", "matches")
)

CODE = re.compile(r"\bCD\d{3}\b")
POINT = re.compile(r"([\w.]+):\w+")
"""How a register names what it loads by name: "module:attribute"."""


# --- what is counted ---------------------------------------------------------------------------


def similar_records(sources: Iterable[Source], share: float = 0.7, least: int = 4) -> Amounts:
    """Pairs of record classes with the same names of fields: at least `least`, and at least that
    share of the smaller one's. A record is a dataclass, NamedTuple, Struct, TypedDict or event."""
    classes = [
        (f"{source.name}.{node.name}", node)
        for source in sources
        for node in source.nodes
        if isinstance(node, ast.ClassDef)
    ]
    bases = {"NamedTuple", "Struct", "TypedDict"}
    records: dict[str, set[str]] = {}
    grown = True
    while grown:  # a class that extends a record is one
        fresh = {
            name: node for name, node in classes if name not in records and _is_record(node, bases)
        }
        records |= {name: _fields(node) for name, node in fresh.items()}
        bases |= {node.name for node in fresh.values()}
        grown = bool(fresh)
    shared = {pair: len(records[pair[0]] & records[pair[1]]) for pair in combinations(records, 2)}
    return {
        f"{one} ~ {other}": 1
        for (one, other), count in shared.items()
        if count >= max(least, share * min(len(records[one]), len(records[other])))
    }


def _is_record(node: ast.ClassDef, bases: set[str]) -> bool:
    decorators = {ast.unparse(item).partition("(")[0] for item in node.decorator_list}
    names = {re.split(r"[\[(]", ast.unparse(base))[0].rpartition(".")[2] for base in node.bases}
    return bool(decorators & {"dataclass", "dataclasses.dataclass", "event"} or names & bases)


def _fields(node: ast.ClassDef) -> set[str]:
    return {
        item.target.id
        for item in node.body
        if isinstance(item, ast.AnnAssign)
        and isinstance(item.target, ast.Name)
        and "ClassVar" not in ast.unparse(item.annotation)
    }


def single_importers(sources: Iterable[Source]) -> Amounts:
    """Modules that exactly one other module imports, but for those that a table loads by name."""
    sources = list(sources)
    importers = Counter(other for found in import_graph(sources).values() for other in found)
    loaded = {
        match[1]
        for source in sources
        for node in source.nodes
        if isinstance(node, ast.Constant) and isinstance(node.value, str)
        if (match := POINT.fullmatch(node.value))
    }
    return {
        name: 1
        for name, count in importers.items()
        if count == 1 and not any(name == point or name.endswith(f".{point}") for point in loaded)
    }


def import_graph(sources: Iterable[Source]) -> dict[str, set[str]]:
    """The modules that each module imports, in functions and for type checkers too."""
    by_name = {source.name: source for source in sources}
    graph: dict[str, set[str]] = {}
    for name, source in by_name.items():
        named = (item.name if item.name in by_name else item.base for item in imports(source))
        graph[name] = {other for other in named if other in by_name and other != name}
    return graph


def circles(sources: Iterable[Source]) -> Amounts:
    """Groups of modules that reach each other by imports, lazy ones included."""
    graph = import_graph(sources)
    reached = {name: _reached(name, graph) for name in graph}
    groups = {
        frozenset(other for other in reached[name] if name in reached[other])
        for name in graph
        if name in reached[name]
    }
    return {" <> ".join(sorted(group)): 1 for group in groups}


def _reached(start: str, graph: Mapping[str, set[str]]) -> set[str]:
    reached: set[str] = set()
    ahead = [start]
    while ahead:
        fresh = graph[ahead.pop()] - reached
        reached |= fresh
        ahead.extend(fresh)
    return reached


def ambiguous_names(sources: Iterable[Source]) -> Amounts:
    """Public names that two classes or more have."""
    names = Counter(
        node.name
        for source in sources
        for node in source.nodes
        if isinstance(node, ast.ClassDef) and not node.name.startswith("_")
    )
    return {name: 1 for name, count in names.items() if count > 1}


def modules_of_a_code(sources: Iterable[Source]) -> Amounts:
    """How many modules name each rule code: in a string that is no docstring, as an identifier, or
    by a public constant that stands for it, be it a collection of that code alone."""
    sources = list(sources)
    constants = {
        target.id: texts[0]
        for source in sources
        for node in source.tree.body
        if isinstance(node, ast.Assign | ast.AnnAssign) and node.value is not None
        if len(texts := [item.value for item in ast.walk(node.value) if _is_text(item)]) == 1
        if CODE.fullmatch(texts[0])
        for target in (node.targets if isinstance(node, ast.Assign) else [node.target])
        if isinstance(target, ast.Name) and re.fullmatch("[A-Z][A-Z_]+", target.id)
    }
    modules: defaultdict[str, set[str]] = defaultdict(set)
    for source in sources:
        for text in _texts_and_names(source):
            for code in CODE.findall(constants.get(text, text)):
                modules[code].add(source.name)
    return {code: len(names) for code, names in modules.items()}


def _is_text(node: ast.AST) -> bool:
    return isinstance(node, ast.Constant) and isinstance(node.value, str)


def _texts_and_names(source: Source) -> Iterable[str]:
    docstrings = {id(node.value) for node in source.nodes if isinstance(node, ast.Expr)}
    for node in source.nodes:
        if _is_text(node):
            if id(node) not in docstrings:
                yield node.value
        elif isinstance(node, ast.Name):
            yield node.id
        elif isinstance(node, ast.Attribute):
            yield node.attr


def evidence_reads(sources: Iterable[Source]) -> Amounts:
    """Reads of a dict called evidence, by module."""
    return Counter(
        source.name
        for source in sources
        for node in source.nodes
        if (isinstance(node, ast.Subscript) and _is_evidence(node.value))
        or (isinstance(node, ast.Attribute) and node.attr == "get" and _is_evidence(node.value))
    )


def _is_evidence(node: ast.expr) -> bool:
    return ast.unparse(node).rpartition(".")[2] == "evidence"


def nameless_lines(sources: Iterable[Source]) -> Amounts:
    """Docstrings that begin with a question word or preposition: they name nothing."""
    return Counter(
        source.name
        for source in sources
        for node in source.nodes
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef)
        if (ast.get_docstring(node) or "").partition(" ")[0] in NAMELESS
    )


def names_without_a_verb(sources: Iterable[Source]) -> Amounts:
    """Functions that begin with no verb of `tests/data/verbs.txt` and are no predicates, but for
    properties, overloads and dunders."""
    verbs = {*(STORED.parent / "verbs.txt").read_text(encoding="utf-8").split(), *PREDICATES}
    return Counter(
        f"{source.name}.{node.name}"
        for source in sources
        for node in source.nodes
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        if not node.name.startswith("__")
        if node.name.strip("_").partition("_")[0] not in verbs
        if not any(
            word in ast.unparse(item)
            for item in node.decorator_list
            for word in ("property", "overload", "setter")
        )
    )


def shown_options(command: click.Command) -> Amounts:
    """Options that the help of a command shows."""
    shown = [item for item in command.params if isinstance(item, click.Option) and not item.hidden]
    return {option.opts[-1]: 1 for option in shown}


def words(pages: Mapping[str, str]) -> Amounts:
    """Words of each page, as `wc -w` counts them."""
    return {path: len(text.split()) for path, text in pages.items()}


def lines(texts: Mapping[str, str]) -> Amounts:
    """Lines of the files in each folder; of folders below it too where it is an extension."""
    found: Counter[str] = Counter()
    for path, text in texts.items():
        found[_room(path)] += text.count("\n")
    return found


def files(texts: Mapping[str, str]) -> Amounts:
    """Modules in each folder."""
    return Counter(_room(path) for path in texts if path.endswith(".py"))


def _room(path: str) -> str:
    """The folder of a package that a file lies in: "compilediag/views"."""
    folders = Path(path).parent.parts
    depth = 3 if folders[0] == "harness" else 2
    return "/".join(folders[: depth + ("extensions" in folders)])


# --- the table -----------------------------------------------------------------------------------


def texts(*patterns: str) -> dict[str, str]:
    """The files that fit, by their paths in the repository."""
    found = {path for pattern in patterns for path in ROOT.glob(pattern) if path.is_file()}
    return {
        path.relative_to(ROOT).as_posix(): path.read_text(encoding="utf-8")
        for path in sorted(found)
        if "__pycache__" not in path.parts
    }


def pages() -> dict[str, str]:
    """The documentation for users: without the pages of rules and those on the project itself."""
    apart = ("docs/rules/", "docs/project/", "docs/architecture.md")
    found = texts("docs/**/*.md")
    return {path: text for path, text in found.items() if not path.startswith(apart)}


def product(*, extensions: bool) -> dict[str, str]:
    """Every file of both halves, whatever its suffix: of the core or of the extensions."""
    both = texts("compilediag/**/*", "harness/**/*")
    return {path: text for path, text in both.items() if ("/extensions/" in path) == extensions}


class Ratchet(NamedTuple):
    """One number: what it counts, what it shall become, and how it is counted now."""

    sentence: str
    goal: int
    count: Callable[[], Amounts]
    total: Callable[[Iterable[int]], int] = sum


RATCHETS = {
    "similar_records": Ratchet(
        "pairs of record classes that share 70 % of their fields",
        60,
        lambda: similar_records(project()),
    ),
    "single_importers": Ratchet(
        "modules with exactly one importer that no register names",
        110,
        lambda: single_importers(project()),
    ),
    "ambiguous_names": Ratchet(
        "class names with two meanings or more", 0, lambda: ambiguous_names(project())
    ),
    "modules_of_a_code": Ratchet(
        "modules that name the same rule code", 4, lambda: modules_of_a_code(project()), max
    ),
    "circles": Ratchet("circles of modules", 0, lambda: circles(project())),
    "evidence_reads": Ratchet(
        "reads of a dict called evidence", 0, lambda: evidence_reads(project())
    ),
    "nameless_lines": Ratchet(
        "docstrings whose first line names nothing", 1, lambda: nameless_lines(project())
    ),
    "names_without_a_verb": Ratchet(
        "functions that begin with no verb", 60, lambda: names_without_a_verb(project())
    ),
    "run_options": Ratchet(
        "options in the help of run", 14, lambda: shown_options(load_command("run"))
    ),
    "words": Ratchet("words for users in docs/", 60_000, lambda: words(pages())),
    "files": Ratchet(
        "modules of the product",
        430,
        lambda: files(product(extensions=False) | product(extensions=True)),
    ),
    "core_lines": Ratchet("lines of the core", 65_000, lambda: lines(product(extensions=False))),
    "extension_lines": Ratchet(
        "lines of the extensions", 11_500, lambda: lines(product(extensions=True))
    ),
    "test_lines": Ratchet("lines of tests", 50_000, lambda: lines(texts("tests/**/*.py"))),
}


def compare(ratchet: Ratchet, found: Amounts, stored: Amounts) -> str | None:
    """The sentence about a number that rose, with what is new in it; None for one that did not."""
    now, before = (ratchet.total([0, *amounts.values()]) for amounts in (found, stored))
    if now <= before:
        return None
    new = sorted(name for name, amount in found.items() if amount > stored.get(name, 0))
    more = {name: f"{name} (+{found[name] - stored.get(name, 0)})" for name in new}
    return f"{ratchet.sentence}: {now:,}, at most {before:,} are allowed; new: " + "; ".join(
        name if found[name] == 1 else more[name] for name in new
    )


def read() -> dict[str, dict[str, int]]:
    """What is stored, by the names of ratchets."""
    return json.loads(STORED.read_text(encoding="utf-8"))


def main() -> int:
    """1 when a number rose that may not."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--raise", dest="may_rise", nargs="*", default=[], choices=RATCHETS)
    may_rise: list[str] = parser.parse_args().may_rise
    stored = read() if STORED.exists() else {}
    risen = False
    for name, ratchet in RATCHETS.items():
        found = ratchet.count()
        problem = compare(ratchet, found, stored.get(name, found))
        now = ratchet.total([0, *found.values()])
        print(f"{now:>7,}  {ratchet.sentence} (goal: {ratchet.goal:,})")
        if problem is None or name in may_rise:
            stored[name] = dict(sorted(found.items()))
        else:
            risen = True
            print(f"         {problem}")
    STORED.write_text(json.dumps(stored, indent=1) + "\n", encoding="utf-8")
    return int(risen)


if __name__ == "__main__":
    sys.exit(main())
