"""The import rules of docs/architecture.md, and that each of them can fail.

Every check reads source text only, imports at any depth included, so a violation inside a function
is found as well as one at the top of a module.
"""

import ast
import re
import sys
from collections.abc import Callable, Iterable, Iterator

import pytest
from sources import ROOT, Source, imports, project

ROOMS = (
    {"errors", "_version", "json_document", "option_fields", "project_urls"},
    {"extension_points"},
    {"receipt.schema"},
    {"timeline"},
    {"readers", "diagnosis"},
    {"rules"},
    {"receipt"},
    {"compare"},
    {"certify"},
    {"fixes"},
    {"views"},
    {"runs"},
    {"commands", "pytest_plugin"},
    {"cli", "notebook"},
    {"__main__", ""},
    {"extensions"},
)
"""The outside, floor by floor: a room imports rooms of lower floors only, so that two rooms of one
floor do not know each other. The types of a receipt are its lowest floor: who computes a fact
fills them. The root package ("") gives the public names."""

INSIDE_ROOMS = (
    {"wire", "redaction", "extension_points"},
    {"base"},
    {"torch_internals"},
    {"blame"},
    {"user_api"},
    {"steps"},
    {"shapes"},
    {"collectors"},
    {"trials"},
    {"attach"},
    {"process"},
    {"bootstrap", ""},
    {"extensions"},
)
"""The same for the inside."""

PURE_ROOMS = frozenset(
    {"receipt.schema", "timeline", "diagnosis", "rules", "receipt", "compare", "certify"}
    | {"fixes", "views"}
)
"""No files, no clock, no processes, no torch; but for what follows."""
IMPURE_PARTS = frozenset(
    "cadence.command cadence.probe fleet.options fleet.scan fleet.trend_command "
    "mcp.command mcp.jobs mcp.server mcp.tools "
    "prices repro.command telemetry.exporter telemetry.sinks telemetry.settings "
    "train_logs.ending train_logs.patterns train_logs.series".split()
)
"""The modules of extensions that are not; all others are."""
TOUCHES_FILES = frozenset(
    {
        "compilediag.receipt.file",
        "compilediag.receipt.locate",
        "compilediag.compare.gate.baseline_file",
    }
)
"""The only modules of pure rooms that open files, or look where they are."""

IMPURE_MODULES = frozenset(
    "asyncio datetime glob http io logging multiprocessing os pathlib random select shutil signal "
    "socket subprocess tempfile threading time torch urllib".split()
)
IMPURE_CALLS = frozenset({"open", "print", "input", "exec", "eval", "breakpoint"})
PRIVATE_TORCH = re.compile(r"torch\w*(\.\w+)*\._[A-Za-z]\w*(\.\w+)*")


def root(module: str) -> str:
    return module.partition(".")[0]


def is_inside(source: Source) -> bool:
    return root(source.name) == "compilediag_harness"


# --- the checks ------------------------------------------------------------------------------


def inside_stays_inside(source: Source) -> Iterator[str]:
    """The inside imports the standard library, torch and itself; never the outside."""
    allowed = sys.stdlib_module_names | {"torch", "compilediag_harness"}
    for item in imports(source):
        if is_inside(source) and root(item.name) not in allowed:
            yield f"line {item.line}: the inside imports {item.name}"


def torch_is_lazy(source: Source) -> Iterator[str]:
    """Nothing imports torch when it is itself imported."""
    for item in imports(source):
        if item.at_top and root(item.name) == "torch":
            yield f"line {item.line}: torch at module level"


def rooms_go_down(source: Source) -> Iterator[str]:
    """A module imports only its own room and rooms of lower floors."""
    floors = INSIDE_ROOMS if is_inside(source) else ROOMS
    package = root(source.name)
    own = room_of(source.name)
    floor = floor_of(own, floors)
    if floor is None:
        yield f"{source.name} stands in no room"
        return
    for item in imports(source):
        if root(item.name) != package:
            continue
        other = room_of(item.name)
        if floor_of(other, floors) is None:  # a name of the package itself
            other = room_of(item.base)
        below = floor_of(other, floors)
        if other != own and (below is None or below >= floor):
            yield f"line {item.line}: {own or package} imports {item.name}"


def room_of(module: str) -> str:
    """The folder or file of the package that a module lies in; "" for the package itself."""
    if module.startswith("compilediag.receipt.schema"):
        return "receipt.schema"
    return module.split(".")[1] if "." in module else ""


def extension_of(module: str) -> str:
    """The extension that a module belongs to; "" for the core."""
    parts = module.split(".")
    return parts[2] if len(parts) > 2 and parts[1] == "extensions" else ""


def part_of(module: str) -> str:
    """The room that a module of an extension would stand in, by the last word of its name:
    "views" for `trend_view`; "" for none."""
    word = re.split(r"[._]", module)[-1] if extension_of(module) else ""
    return {"view": "views", "command": "commands", "options": "commands"}.get(word, word)


def floor_of(room: str, floors: tuple[set[str], ...]) -> int | None:
    """Index from below; None for what is no room."""
    return next((index for index, rooms in enumerate(floors) if room in rooms), None)


def extensions_stand_alone(source: Source) -> Iterator[str]:
    """An extension imports no other one, and its views and rules do not know its commands."""
    own = extension_of(source.name)
    if not own:
        return
    floor = floor_of(part_of(source.name), ROOMS[:-1])
    for item in imports(source):
        if extension_of(item.name) not in {"", own}:
            yield f"line {item.line}: the extension {own} imports {item.name}"
        if extension_of(item.name) == own and part_of(item.name) != part_of(source.name):
            other = floor_of(part_of(item.name), ROOMS[:-1])
            if part_of(item.name) and floor is not None and other is not None and other >= floor:
                yield f"line {item.line}: {part_of(source.name)} imports {item.name}"


def pure_is_pure(source: Source) -> Iterator[str]:
    """Rules, views, gate and what they stand on open no file, read no clock, need no torch."""
    if is_inside(source) or source.name in TOUCHES_FILES:
        return
    part = source.name.removeprefix("compilediag.extensions.")
    if room_of(source.name) not in PURE_ROOMS and (part == source.name or part in IMPURE_PARTS):
        return
    for item in imports(source):
        paths_only = item.name.startswith(("pathlib.Pure", "os.path"))
        if root(item.name) in IMPURE_MODULES and not paths_only:
            yield f"line {item.line}: a pure module imports {item.name}"
    for node in source.nodes:
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
            if node.func.id in IMPURE_CALLS:
                yield f"line {node.lineno}: a pure module calls {node.func.id}()"


def private_torch_in_one_place(source: Source) -> Iterator[str]:
    """In the inside only `torch_internals/` names what is private in torch, as code or text."""
    if not is_inside(source) or room_of(source.name) == "torch_internals":
        return
    for item in imports(source):
        if PRIVATE_TORCH.fullmatch(item.name):
            yield f"line {item.line}: imports {item.name}"
    for node in source.nodes:
        named = ast.unparse(node) if isinstance(node, ast.Attribute) else None
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            named = node.value
        if named is not None and PRIVATE_TORCH.fullmatch(named):
            yield f"line {node.lineno}: {named}"


def harness_is_a_folder(source: Source) -> Iterator[str]:
    """`harness` is a name that belongs to users."""
    for item in imports(source):
        if root(item.name) == "harness":
            yield f"line {item.line}: imports {item.name}"


def only_writers_print(source: Source) -> Iterator[str]:
    """Only the terminal of the commands writes to stdout and stderr."""
    if source.name == "compilediag.commands.terminal":
        return
    writes = {"print", "click.echo", "sys.stdout.write", "sys.stderr.write"}
    for node in source.nodes:
        if isinstance(node, ast.Call) and ast.unparse(node.func) in writes:
            yield f"line {node.lineno}: prints"


Check = Callable[[Source], Iterable[str]]
CHECKS: tuple[Check, ...] = (
    inside_stays_inside,
    torch_is_lazy,
    rooms_go_down,
    extensions_stand_alone,
    pure_is_pure,
    private_torch_in_one_place,
    harness_is_a_folder,
    only_writers_print,
)

FLEET = "compilediag.extensions.fleet.trend_view"
STEPS, RULE = "compilediag_harness.steps.steps", "compilediag.rules.breaks.rule"
VIOLATIONS: tuple[tuple[Check, str, str], ...] = (
    (inside_stays_inside, STEPS, "import compilediag.errors"),
    (inside_stays_inside, STEPS, "def f():\n    import numpy.linalg"),
    (torch_is_lazy, STEPS, "from torch import nn"),
    (torch_is_lazy, "compilediag.cli", "if True:\n    import torch.nn as nn"),
    (rooms_go_down, "compilediag.errors", "from compilediag.cli import main"),
    (rooms_go_down, RULE, "def f():\n    import compilediag.receipt.file"),
    (rooms_go_down, RULE, "from ...receipt import file"),
    (rooms_go_down, "compilediag.receipt.schema.caches", "import compilediag.timeline.compiles"),
    (rooms_go_down, "compilediag.diagnosis.findings", "import_module('compilediag.views.verdict')"),
    (rooms_go_down, "compilediag.diagnosis.blame", "from compilediag.readers import journal"),
    (rooms_go_down, "compilediag.utils", ""),
    (rooms_go_down, "compilediag.cli", "from compilediag.extensions.fleet import folder"),
    (rooms_go_down, "compilediag_harness.attach", "import compilediag_harness.extensions.tracker"),
    (extensions_stand_alone, FLEET, "def f():\n    from compilediag.extensions.repro import views"),
    (extensions_stand_alone, FLEET, "from compilediag.extensions.fleet import options"),
    (pure_is_pure, RULE, "import time"),
    (pure_is_pure, "compilediag.views.verdict", "from pathlib import Path"),
    (pure_is_pure, FLEET, "import time"),
    (pure_is_pure, "compilediag.timeline.timeline", "def f(path):\n    return open(path).read()"),
    (private_torch_in_one_place, STEPS, "x = torch._dynamo.config.limit"),
    (private_torch_in_one_place, STEPS, "from torch._dynamo import config"),
    (private_torch_in_one_place, STEPS, "x = modules['torch._C._dynamo']"),
    (private_torch_in_one_place, STEPS, "torch.nn.modules._functions.f()"),
    (private_torch_in_one_place, STEPS, "x = torch_module.utils._Iter"),
    (harness_is_a_folder, "compilediag.cli", "from harness.compilediag_harness import wire"),
    (only_writers_print, "compilediag.runs.supervised", "print('done')"),
    (only_writers_print, "compilediag.commands.show", "sys.stdout.write('done')"),
)

ALLOWED: tuple[tuple[Check, str, str], ...] = (
    (inside_stays_inside, STEPS, "import json, torch, compilediag_harness.wire"),
    (torch_is_lazy, STEPS, "def f():\n    import torch"),
    (rooms_go_down, "compilediag.cli", "from compilediag import errors"),
    (
        extensions_stand_alone,
        "compilediag.extensions.fleet.stats_command",
        "from compilediag.extensions.fleet import stats\nfrom compilediag import cli",
    ),
    (rooms_go_down, RULE, "from compilediag.rules.breaks import break_report"),
    (pure_is_pure, RULE, "from pathlib import PurePosixPath"),
    (private_torch_in_one_place, STEPS, "x = torch.optim.Optimizer.__name__"),
    (only_writers_print, "compilediag.commands.terminal", "print('done')"),
)


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
def test_project_obeys(check: Check) -> None:
    """Every module of the project keeps the rule."""
    broken = [f"{source.name}: {what}" for source in project() for what in check(source)]
    assert not broken, "\n".join(broken)


@pytest.mark.parametrize(("check", "name", "text"), VIOLATIONS)
def test_check_can_fail(check: Check, name: str, text: str) -> None:
    """A module that breaks the rule is found: the check is not empty."""
    assert list(check(Source(name, text))) != []


@pytest.mark.parametrize(("check", "name", "text"), ALLOWED)
def test_check_lets_good_code_pass(check: Check, name: str, text: str) -> None:
    """The rule forbids no more than it says."""
    assert list(check(Source(name, text))) == []


def test_every_check_is_shown_to_fail() -> None:
    """A check added without a violating snippet is noticed."""
    assert {check for check, _, _ in VIOLATIONS} == set(CHECKS)


@pytest.mark.parametrize(
    ("package", "floors"), [("compilediag", ROOMS), ("harness/compilediag_harness", INSIDE_ROOMS)]
)
def test_rooms_are_those_that_exist(package: str, floors: tuple[set[str], ...]) -> None:
    """No floor names a room that is gone, and no module or folder stands in none."""
    folder = ROOT / package
    there = {path.stem for path in folder.iterdir() if path.suffix in {"", ".py"}}
    named = {name for rooms in floors for name in rooms if name and "." not in name}
    assert named == there - {"__pycache__", "__init__"}


def test_the_project_is_really_read() -> None:
    """The walk finds both halves: an empty walk would pass every check."""
    names = {source.name for source in project()}
    assert {"compilediag.cli", "compilediag.timeline.timeline", "compilediag_harness.wire"} <= names
