"""Damaged receipts, lock files and configuration, for `fuzz.py`: each is refused in a sentence, or
read, and then everything that reads it goes on.

Half of the documents are damaged as bytes, half as values: fields dropped, doubled and replaced by
what a field never holds.
"""

from __future__ import annotations

import copy
import json
import random
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

from compilediag.commands.show import render_views
from compilediag.commands.subcommand import read_defaults
from compilediag.commands.target import TOML_KEYS
from compilediag.compare.diff import Comparison, compare
from compilediag.compare.gate.baseline import Baseline, format_lock, parse_lock
from compilediag.compare.gate.judge import judge, record_baseline
from compilediag.compare.gate.limits import parse_limits
from compilediag.errors import CompilediagError
from compilediag.receipt.file import read_receipt
from compilediag.views.diff import show_comparison
from compilediag.views.style import RenderOptions
from compilediag.views.terminal import render_overview

Damage = Callable[[random.Random, bytes], bytes]

DATA = Path(__file__).resolve().parent.parent / "tests" / "data"
RECEIPTS = ("receipt-1.0.json", "receipt-example.json")
VIEWS = ("", "complete", "frames", "timeline", "steps", "ranks", "markdown", "as_json")
LIMITS = parse_limits("recompiles>0, CD103>3")

HOSTILE: tuple[Any, ...] = (
    None,
    "",
    [],
    {},
    True,
    -1,
    0,
    2**64,
    1e308,
    -0.0,
    "x" * 10_000,
    "\x1b]0;x\x07",
    "../../etc/passwd",
    "<script>",
    "\ud800",
    [[[[]]]],
    {"": {"": None}},
)

CONFIGURATION = b"""\
[tool.compilediag]
output = "runs"
quiet = true
timeout = 3.5

[tool.compilediag.probe]
steps = 40
groups = { entropy = "--entropy-every {n}" }
"""


def targets(damaged: Damage) -> list[tuple[str, Callable[[random.Random], None]]]:
    """What to feed, each with its name; `damaged` mutates bytes."""
    receipts = [(DATA / name).read_bytes() for name in RECEIPTS]
    lock = _lock()
    found = [("receipt", _receipts(content, damaged)) for content in receipts]
    return [*found, ("lock file", _locks(lock, damaged)), ("configuration", _configured(damaged))]


def _lock() -> bytes:
    """A baseline with something in each of its lists."""
    receipt = read_receipt(DATA / "receipt-example.json")
    return format_lock(
        Baseline((record_baseline(receipt, None, configuration="train").baseline,))
    ).encode()


def _receipts(content: bytes, damaged: Damage) -> Callable[[random.Random], None]:
    whole = read_receipt(DATA / RECEIPTS[-1])

    def feed(source: random.Random) -> None:
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder, "receipt.json")
            path.write_bytes(_either(source, content, damaged))
            try:
                receipt = read_receipt(path)
            except CompilediagError:
                return
            for view in VIEWS:
                _refused_or_done(lambda view=view: render_views([view], str(path)))
            _refused_or_done(lambda: judge(receipt, limits=LIMITS))
            _refused_or_done(lambda: _drawn(compare(whole, receipt)))

    return feed


def _drawn(found: Comparison) -> str:
    return render_overview(show_comparison(found, RenderOptions()), RenderOptions())


def _locks(content: bytes, damaged: Damage) -> Callable[[random.Random], None]:
    whole = read_receipt(DATA / RECEIPTS[-1])

    def feed(source: random.Random) -> None:
        text = _either(source, content, damaged).decode("utf-8", "replace")
        _refused_or_done(
            lambda: judge(whole, baseline=parse_lock(text).find_configuration("train"))
        )

    return feed


def _configured(damaged: Damage) -> Callable[[random.Random], None]:
    def feed(source: random.Random) -> None:
        with tempfile.TemporaryDirectory() as folder:
            Path(folder, "pyproject.toml").write_bytes(damaged(source, CONFIGURATION))
            _refused_or_done(lambda: read_defaults(Path(folder), TOML_KEYS))

    return feed


def _refused_or_done(action: Callable[[], object]) -> None:
    """An error on purpose is an answer."""
    try:
        action()
    except CompilediagError:
        return


def _either(source: random.Random, content: bytes, damaged: Damage) -> bytes:
    if source.random() < 0.5:
        return damaged(source, content)
    document = json.loads(content)
    for _ in range(source.randint(1, 4)):
        _damage_value(source, document)
    return json.dumps(document).encode("utf-8", "surrogatepass")


GO_DOWN = 0.8
"""How often damage goes into a container rather than putting something in its place."""


def _damage_value(source: random.Random, value: Any) -> None:
    """Goes down to a random place, and drops, doubles or replaces what is there."""
    keyed = cast("dict[Any, Any]", value)  # or a list, by its indices
    keys = list(keyed) if isinstance(value, dict) else list(range(len(keyed)))
    if not keys:
        return
    key = source.choice(keys)
    inner = keyed[key]
    if isinstance(inner, (dict, list)) and inner and source.random() < GO_DOWN:
        _damage_value(source, inner)
        return
    fault = source.randrange(4)
    if fault == 0:
        del keyed[key]
    elif fault == 1 and isinstance(value, list):
        cast("list[Any]", value).append(inner)
    else:
        keyed[key] = copy.deepcopy(source.choice(HOSTILE))
