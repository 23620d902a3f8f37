"""The import rules of docs/architecture.md, and that each of them can fail.

Every check reads source text only, imports at any depth included, so a violation inside a function
is found as well as one at the top of a module.
"""

from __future__ import annotations

import ast
import functools
import re
import sys
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent

LAYERS: tuple[tuple[str, ...], ...] = (
    (
        "errors",
        "change_points",
        "pages",
        "pooled",
        "guards",
        "secret_patterns",
        "step_labels",
        "step_stats",
        "stretches",
        "batches",
        "cadence_groups",
        "pipeline_loops",
        "invocation_calls",
        "call_sizes",
        "cudagraph_runs",
        "device_memory",
        "fixed_shapes",
        "tracked_runs",
        "provenance_variables",
        "train_log",
        "attempts",
        "step_measures",
    ),
    ("prices", "timeline", "redact", "storage", "process_events", "sync_sites"),
    (
        "readers",
        "fold_breaks",
        "fold_compiles",
        "fold_frames",
        "fold_timings",
        "findings",
        "process_ranks",
    ),
    (
        "fold",
        "records",
        "codes",
        "ownership",
        "goodput",
        "probing",
        "pipeline_figures",
        "invocation_figures",
        "planned_padding",
    ),
    ("causes", "reconcile", "span_seconds"),
    ("rules", "ranks"),
    ("diagnose",),
    ("receipt", "rank_choice"),
    ("tally", "figures", "size_plan", "size_histogram", "linked_files", "run_directory"),
    ("comparison",),
    ("diff", "gate", "fleet"),
    ("views", "tools", "telemetry"),
    ("supervisor", "watching", "offline", "lock_file", "repro"),
    ("commands", "pytest_plugin"),
    ("cli", "stand_ins"),
    ("__main__",),
)
"""The outside from the bottom; a package stands for its modules, which may import each other."""

PURE = tuple(
    f"compilediag.{name}"
    for name in (
        "timeline",
        "fold",
        "fold_breaks",
        "fold_compiles",
        "fold_frames",
        "process_events",
        "guards",
        "causes",
        "codes",
        "findings",
        "ownership",
        "process_ranks",
        "attempts",
        "step_measures",
        "goodput",
        "stretches",
        "step_stats",
        "secret_patterns",
        "step_labels",
        "batches",
        "sync_sites",
        "fold_timings",
        "span_seconds",
        "cadence_groups",
        "pipeline_loops",
        "pipeline_figures",
        "tracked_runs",
        "provenance_variables",
        "prices",
        "figures",
        "invocation_calls",
        "call_sizes",
        "cudagraph_runs",
        "size_plan",
        "size_histogram",
        "invocation_figures",
        "device_memory",
        "fixed_shapes",
        "planned_padding",
        "probing",
        "redact",
        "reconcile",
        "rules",
        "ranks",
        "diagnose",
        "comparison",
        "tally",
        "diff",
        "gate",
        "change_points",
        "fleet.measures",
        "fleet.entry",
        "fleet.lanes",
        "fleet.stats",
        "fleet.changes",
        "fleet.trend",
        "receipt.build",
        "receipt.cadence_part",
        "receipt.safe",
        "receipt.train_log_part",
        "train_log",
        "receipt.schema",
        "receipt.parts",
        "telemetry.figures",
        "telemetry.growing_process",
        "telemetry.growing_run",
        "telemetry.labels",
        "telemetry.reading",
        "views",
        "repro",
    )
)
"""No files, no clock, no torch."""

IMPURE_MODULES = frozenset(
    "asyncio datetime glob http io logging multiprocessing os pathlib random select shutil signal "
    "socket subprocess tempfile threading time torch urllib".split()
)
IMPURE_CALLS = frozenset({"open", "print", "input", "exec", "eval", "breakpoint"})
PRIVATE_TORCH = re.compile(r"torch\w*(\.\w+)*\._[A-Za-z]\w*(\.\w+)*")


@dataclass(frozen=True)
class Source:
    """A module's dotted name and its text."""

    name: str
    text: str

    @property
    def tree(self) -> ast.Module:
        return ast.parse(self.text)


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
    """Every node, and whether it stands outside of every function."""
    found: deque[tuple[ast.AST, bool]] = deque([(tree, True)])
    while found:
        node, at_top = found.popleft()
        yield node, at_top
        outside = at_top and not isinstance(
            node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda
        )
        found.extend((child, outside) for child in ast.iter_child_nodes(node))


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


def layers_go_down(source: Source) -> Iterator[str]:
    """A module of the outside imports only layers below its own."""
    package, _, rest = source.name.partition(".")
    if package != "compilediag" or not rest:
        return
    own = layer_of(rest)
    if own is None:
        yield f"{source.name} stands in no layer"
        return
    for item in imports(source):
        head, _, below = item.name.partition(".")
        if head != "compilediag" or item.name == "compilediag.__version__":
            continue
        other = layer_of(below)
        same_package = root(below) == root(rest) and (ROOT / "compilediag" / root(rest)).is_dir()
        if other is None or (other >= own and not same_package):
            yield f"line {item.line}: layer {own} imports {item.name} of layer {other}"


def layer_of(path: str) -> int | None:
    """Index of the layer of a module below `compilediag`; None when it has none."""
    for index, names in enumerate(LAYERS):
        if root(path) in names:
            return index
    return None


def pure_is_pure(source: Source) -> Iterator[str]:
    """Rules, views, gate and what they stand on open no file, read no clock, need no torch."""
    if not any(source.name == name or source.name.startswith(f"{name}.") for name in PURE):
        return
    for item in imports(source):
        paths_only = item.base == "pathlib" and item.name.startswith("pathlib.Pure")
        if root(item.name) in IMPURE_MODULES and not paths_only:
            yield f"line {item.line}: a pure module imports {item.name}"
    for node in ast.walk(source.tree):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
            if node.func.id in IMPURE_CALLS:
                yield f"line {node.lineno}: a pure module calls {node.func.id}()"


def private_torch_in_one_place(source: Source) -> Iterator[str]:
    """In the harness only the modules called `torch_` spell a private name of torch, as code or as
    a string."""
    if not is_inside(source) or source.name.rpartition(".")[2].startswith("torch_"):
        return
    for item in imports(source):
        if PRIVATE_TORCH.fullmatch(item.name):
            yield f"line {item.line}: imports {item.name}"
    for node in ast.walk(source.tree):
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
    """Only commands, the command line and a generator of pages write to the terminal."""
    if source.name.startswith(("compilediag.commands.", "compilediag.cli")):
        return
    if source.name == "compilediag.receipt.schema_page":
        return
    for node in ast.walk(source.tree):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
            if node.func.id == "print":
                yield f"line {node.lineno}: prints"


Check = Callable[[Source], Iterable[str]]
CHECKS: tuple[Check, ...] = (
    inside_stays_inside,
    torch_is_lazy,
    layers_go_down,
    pure_is_pure,
    private_torch_in_one_place,
    harness_is_a_folder,
    only_writers_print,
)

VIOLATIONS: tuple[tuple[Check, str, str], ...] = (
    (inside_stays_inside, "compilediag_harness.steps.steps", "import compilediag.errors"),
    (inside_stays_inside, "compilediag_harness.steps.steps", "def f():\n    import numpy.linalg"),
    (torch_is_lazy, "compilediag_harness.steps.steps", "from torch import nn"),
    (torch_is_lazy, "compilediag.cli", "if True:\n    import torch.nn as nn"),
    (layers_go_down, "compilediag.errors", "from compilediag.cli import main"),
    (
        layers_go_down,
        "compilediag.diagnosis.rules.breaks",
        "def f():\n    import compilediag.receipt.file",
    ),
    (layers_go_down, "compilediag.diagnosis.rules.breaks", "from ..receipt import file"),
    (
        layers_go_down,
        "compilediag.diagnosis.findings",
        "import_module('compilediag.views.verdict')",
    ),
    (
        layers_go_down,
        "compilediag.diagnosis.reconcile",
        "from compilediag.diagnosis.causes import causes_of",
    ),
    (layers_go_down, "compilediag.utils", ""),
    (pure_is_pure, "compilediag.diagnosis.rules.breaks", "import time"),
    (pure_is_pure, "compilediag.views.verdict", "from pathlib import Path"),
    (pure_is_pure, "compilediag.timeline.timeline", "def f(path):\n    return open(path).read()"),
    (
        private_torch_in_one_place,
        "compilediag_harness.steps.steps",
        "x = torch._dynamo.config.limit",
    ),
    (
        private_torch_in_one_place,
        "compilediag_harness.steps.steps",
        "from torch._dynamo import config",
    ),
    (
        private_torch_in_one_place,
        "compilediag_harness.steps.steps",
        "x = modules['torch._C._dynamo']",
    ),
    (
        private_torch_in_one_place,
        "compilediag_harness.steps.steps",
        "torch.nn.modules._functions.f()",
    ),
    (private_torch_in_one_place, "compilediag_harness.steps.steps", "x = torch_module.utils._Iter"),
    (harness_is_a_folder, "compilediag.cli", "from harness.compilediag_harness import wire"),
    (only_writers_print, "compilediag.runs.supervised", "print('done')"),
)

ALLOWED: tuple[tuple[Check, str, str], ...] = (
    (
        inside_stays_inside,
        "compilediag_harness.steps.steps",
        "import json, torch, compilediag_harness.wire",
    ),
    (torch_is_lazy, "compilediag_harness.steps.steps", "def f():\n    import torch"),
    (layers_go_down, "compilediag.cli", "from compilediag import __version__, errors"),
    (
        layers_go_down,
        "compilediag.diagnosis.rules.breaks",
        "from compilediag.diagnosis.rules import registry",
    ),
    (pure_is_pure, "compilediag.diagnosis.rules.breaks", "from pathlib import PurePosixPath"),
    (
        private_torch_in_one_place,
        "compilediag_harness.steps.steps",
        "x = torch.optim.Optimizer.__name__",
    ),
    (only_writers_print, "compilediag.commands.show", "print('done')"),
)


def label(check: Check) -> str:
    return check.__name__


@pytest.mark.parametrize("check", CHECKS, ids=label)
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


def test_layers_name_what_exists() -> None:
    """No layer names a module that is gone."""
    package = ROOT / "compilediag"
    named = {name for names in LAYERS for name in names}
    gone = {n for n in named if not (package / n).is_dir() and not (package / f"{n}.py").is_file()}
    assert gone == set()


def test_the_project_is_really_read() -> None:
    """The walk finds both halves: an empty walk would pass every check."""
    names = {source.name for source in project()}
    assert {"compilediag.cli", "compilediag.timeline.timeline", "compilediag_harness.wire"} <= names
