"""Compares what two checkouts make of the same programs, the same records and the same receipts.

    python tools/compare_receipts.py collect CHECKOUT OUT [--recorded] [--only NAME]
    python tools/compare_receipts.py freeze OUT FILE
    python tools/compare_receipts.py compare BEFORE AFTER [BEFORE_AGAIN]

`collect` runs both programs of every scenario under the compilediag of CHECKOUT (with the Python of
its `.venv`), lets it analyze every recorded run, trace, text log and trainer log, and lets it draw
every view, `--json` and CI format of recorded receipts; programs and records are those of this
checkout. With `--recorded` no program runs: no torch is needed, and the same code gives the same.
`freeze` writes a collection to one file, which `compare` takes as well as a folder.

`compare` lists every field that differs, is lost or is new. Of a record, ids and times of writing
are left out; where a program ran, numbers that were measured, which each time gives others, are
left out too, and so is what BEFORE_AGAIN, a second collection of the same checkout, has otherwise.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib
import io
import json
import lzma
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple, cast

ROOT = Path(__file__).resolve().parent.parent
DATA = ROOT / "tests" / "data"
_BELOW = "|".join(re.escape(str(ROOT.relative_to(above))) for above in reversed(ROOT.parents))
FROM_RECEIPT = re.compile(rf"\.\./(?:\.\./)+(?:{_BELOW})(?=/)")
"""The checkout as a receipt names it that stands in a folder for temporary files."""
LIMIT_S = 600
ABSENT = "(absent)"

VOLATILE = re.compile(
    r"(^|\.)(receipt_id|run_id|created_at_utc|pid|started_at_utc|ended_at_utc|hostname|uri|sha256"
    r"|size_bytes|argv_redacted|cwd|git_\w+|source_sha256|load\w*|overhead|goodput|cost|memory"
    r"|artifacts|environment|provenance|graph_break_us|guard_eval_us|peak_bytes|bytes)(\.|$)"
)
"""Fields of a program's run that differ from run to run of the same code."""
IDENTITY = re.compile(r"(^|\.)(receipt_id|created_at_utc|overhead\.\w*collector\w*)(\.|$)")
"""Fields of a record's receipt that differ each time it is read."""
UNSTABLE = re.compile(r"0x[0-9a-f]+|\b\d{12,}\b|[^'\"\s]*/\.venv/|\d+(\.\d+)?(?= ?(%|ms|/s|times))")
"""In texts: addresses, ids of objects, the folder of the environment, measured numbers."""
MEASURED = re.compile(
    r"(steps\.sketch|steps\.spikes|journal_records|_s|_ms|_us|_bytes|_fraction|seconds|wall|cpu)(\.|$)"
)
WRITTEN_NOW = re.compile(
    r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d(:\d\d)?(\.\d+)?Z?|\b[0-7][0-9A-HJKMNP-TV-Z]{25}\b"
)
"""In screens: times, and ids of receipts."""

VIEWS = (
    "--all",
    "--frames",
    "--timeline",
    "--steps",
    "--compile-time",
    "--ranks",
    "--md",
    "--json",
    "--issue",
)
CI_FORMATS = ("terminal", "github", "gitlab", "sarif", "junit", "md", "json")
LIMITS = "recompiles>0,graph_breaks>0"


WORDED = "2.13.0"
"""The torch whose recorded runs are also drawn: every sentence of every rule."""


class Command(NamedTuple):
    """One command line of compilediag, and where what it gives is kept."""

    name: str
    arguments: tuple[str, ...]
    folder: str | None = None
    """Where its receipts lie; None: what it prints is kept."""


def main() -> int:
    """1 where `compare` found a difference, else 0."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    commands = parser.add_subparsers(dest="command", required=True)
    collecting = commands.add_parser("collect")
    collecting.add_argument("checkout", type=Path)
    collecting.add_argument("out", type=Path)
    collecting.add_argument("--recorded", action="store_true", help="run no program")
    collecting.add_argument("--only", default="", help="part of the name of a scenario or record")
    freezing = commands.add_parser("freeze")
    freezing.add_argument("out", type=Path)
    freezing.add_argument("file", type=Path)
    comparing = commands.add_parser("compare")
    comparing.add_argument("sides", type=Path, nargs="+", metavar="BEFORE AFTER [BEFORE_AGAIN]")
    performing = commands.add_parser("perform")  # by the Python of CHECKOUT
    performing.add_argument("list", type=Path)
    performing.add_argument("out", type=Path)
    options = parser.parse_args()
    if options.command == "collect":
        collect(options.checkout.resolve(), options.out.resolve(), options.only, options.recorded)
    elif options.command == "freeze":
        freeze(options.out, options.file)
    elif options.command == "perform":
        perform(json.loads(options.list.read_text(encoding="utf-8")), options.out)
    else:
        return compare(*options.sides)
    return 0


# --- collecting -----------------------------------------------------------------------------------


def collect(checkout: Path, out: Path, only: str, recorded: bool) -> None:
    """Writes one `NAME.json` for each program, record and screen into `out`."""
    out.mkdir(parents=True, exist_ok=True)
    if not recorded:
        run_programs(checkout, out, only)
    with tempfile.TemporaryDirectory(prefix="compare-") as scratch:
        here = Path(scratch)
        commands = [*_of_recorded_runs(here, only), *_of_records(only), *_of_receipts(here, only)]
        todo = here / "commands.json"
        todo.write_text(json.dumps(commands), encoding="utf-8")
        python = str(checkout / ".venv" / "bin" / "python")
        kept = {
            k: v
            for k, v in os.environ.items()
            if not k.startswith(("COMPILEDIAG", "CI", "GITHUB", "GITLAB"))
        }
        variables = {
            "PYTHONPATH": f"{checkout}{os.pathsep}{checkout / 'harness'}",
            "COLUMNS": "100",
        }
        subprocess.run(
            [python, str(Path(__file__).resolve()), "perform", str(todo), str(out)],
            cwd=scratch,
            env={**kept, **variables},
            check=True,
        )


def run_programs(checkout: Path, out: Path, only: str) -> None:
    """Runs both programs of every scenario."""
    program = str(checkout / ".venv" / "bin" / "compilediag")
    for path in sorted((ROOT / "scenarios").glob("*/*.py")):
        name = f"{path.parent.name}-{path.stem}"
        if path.stem not in {"broken", "fixed"} or only not in name:
            continue
        folder = out / "runs" / name
        arguments = ["run", "--quiet", "--no-live", "--output", str(folder), "--", str(path)]
        ended = subprocess.run(
            [program, *arguments],
            cwd=path.parent,
            capture_output=True,
            timeout=LIMIT_S,
            check=False,
        )
        _keep_receipts("program", ended.returncode, folder, out, name)


def _of_recorded_runs(scratch: Path, only: str) -> Iterator[Command]:
    """`analyze JOURNAL`, for every scenario on every version of torch that was recorded."""
    sys.path.insert(0, str(ROOT / "tests" / "support"))
    recordings: Any = importlib.import_module("recordings")
    for path in recordings.list_paths():
        recording = recordings.read(path)
        if only in recording.id:
            recording.unpack(scratch / recording.id)
            yield _analyze(f"journal-{recording.id}", recording.id)
            if recording.id.startswith(WORDED):
                receipt = f"receipts-journal-{recording.id}/receipt.json"
                for view in VIEWS:
                    yield Command(f"screen-{recording.id}-show{view}", ("show", view, receipt))
                yield _judge(f"screen-{recording.id}", "sarif", receipt)


def _of_records(only: str) -> Iterator[Command]:
    records = [*DATA.glob("traces*/*.gz"), DATA / "traces" / "ranks", *DATA.glob("torch_logs*.txt")]
    for path in sorted([*records, *DATA.glob("train_logs/*.log")]):
        name = f"{path.parent.name}-{path.name}"
        if only in name:
            yield _analyze(name, str(path))


def _analyze(name: str, path: str) -> Command:
    folder = f"receipts-{name}"
    return Command(name, ("analyze", path, "--output", folder, "--name", name), folder)


def _of_receipts(scratch: Path, only: str) -> Iterator[Command]:
    """Every view, `--json` and CI format, of receipts that do not change. They are copied: where a
    line is broken depends on the length of a path."""
    paths = [*DATA.glob("views/*.json"), *(ROOT / "examples" / "receipts").glob("*.json")]
    paths.append(DATA / "receipt-example.json")
    before = "stored/views/clean.json"
    for path in sorted(paths):
        receipt, name = (
            f"stored/{path.parent.name}/{path.name}",
            f"screen-{path.parent.name}-{path.stem}",
        )
        (scratch / receipt).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(path, scratch / receipt)
        commands: dict[str, tuple[str, ...]] = {
            "show": ("show", receipt),
            **{f"show{view}": ("show", view, receipt) for view in VIEWS},
            "explain": ("explain", "1", receipt),
            "diff": ("diff", before, receipt),
            "diff--md": ("diff", "--md", before, receipt),
            "diff--json": ("diff", "--json", before, receipt),
            "plan--json": ("plan", "--json", receipt),
            "repro": ("repro", "1", receipt, "--output", "-"),
        }
        for kind, arguments in commands.items():
            if only in f"{name}-{kind}":
                yield Command(f"{name}-{kind}", arguments)
        for form in CI_FORMATS:
            if only in f"{name}-gate-{form}":
                yield _judge(name, form, receipt)


def _judge(name: str, form: str, receipt: str) -> Command:
    judging = ("gate", "--any-code", "--fail-on", LIMITS, "--format", form, receipt)
    return Command(f"{name}-gate-{form}", judging)


def perform(commands: Sequence[Sequence[Any]], out: Path) -> None:
    """Runs each command in this process, which is one of the checkout, and keeps what it gives."""
    from compilediag.cli import main as compilediag

    for name, arguments, folder in commands:
        kept = io.BytesIO()
        said = io.TextIOWrapper(kept, encoding="utf-8", write_through=True)
        with contextlib.redirect_stdout(said), contextlib.redirect_stderr(said):
            code = compilediag(arguments)
        if folder is not None:
            _keep_receipts("record", code, Path(folder), out, name)
            continue
        screen = kept.getvalue().decode(errors="replace").replace(f"{os.getcwd()}/", "")
        _keep(out / f"{name}.json", "screen", code, {"lines": screen.split("\n")})


def _keep_receipts(kind: str, code: int, folder: Path, out: Path, name: str) -> None:
    found = sorted(folder.rglob("receipt*.json"))
    for index, path in enumerate(found):
        kept = json.loads(path.read_text(encoding="utf-8"))
        _keep(out / f"{name}{f'-{index}' if index else ''}.json", kind, code, kept)
    if not found:
        print(f"{name}: no receipt (exit code {code})", file=sys.stderr)


def _keep(path: Path, kind: str, code: int, document: object) -> None:
    text = json.dumps({"kind": kind, "exit_code": code, "receipt": document}, indent=1)
    path.write_text(text, encoding="utf-8")


# --- comparing ------------------------------------------------------------------------------------

Fields = dict[str, object]


def freeze(out: Path, file: Path) -> None:
    """Writes the fields that are compared of a collection into one file."""
    text = json.dumps(_read(out), indent=0, sort_keys=True)
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_bytes(lzma.compress(text.encode()))


def compare(before: Path, after: Path, again: Path | None = None) -> int:
    """Prints every difference; 1 where there is one."""
    left, right = _read(before), _read(after)
    repeated = {} if again is None else _read(again)
    wrong = 0
    for name in sorted({*left, *right}):
        if name not in left or name not in right:
            print(f"{name}: only in {before if name in left else after}")
            wrong += 1
            continue
        unstable = set(_differences(left[name], repeated.get(name, left[name])))
        for field, (was, now) in _differences(left[name], right[name]).items():
            if field not in unstable:
                print(f"{name}: {field}: {was!r} -> {now!r}")
                wrong += 1
    print(f"{len({*left, *right})} receipts and screens compared, {wrong} differences")
    return int(wrong > 0 or not left)


def _differences(left: Fields, right: Fields) -> dict[str, tuple[object, object]]:
    pairs = {
        field: (left.get(field, ABSENT), right.get(field, ABSENT)) for field in {**left, **right}
    }
    return {field: (was, now) for field, (was, now) in pairs.items() if was != now}


def _read(side: Path) -> dict[str, Fields]:
    """The fields that are compared, by the name of the receipt or screen."""
    if side.is_file():
        return json.loads(lzma.decompress(side.read_bytes()))
    return {path.stem: _fields(path) for path in _sorted(side.glob("*.json"))}


def _sorted(paths: Iterable[Path]) -> list[Path]:
    return sorted(paths, key=lambda path: path.name)


def _fields(path: Path) -> Fields:
    document: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    return dict(_leaves(document, "", document["kind"]))


def _leaves(value: Any, path: str, kind: str) -> Iterator[tuple[str, object]]:
    """Every field that the same code gives again, by its path; a list counts as one field more."""
    if (VOLATILE if kind == "program" else IDENTITY).search(path):
        return
    if isinstance(value, dict):
        for key, item in cast(dict[str, Any], value).items():
            yield from _leaves(item, f"{path}.{key}" if path else key, kind)
    elif isinstance(value, list):
        items = cast(list[Any], value)
        yield f"{path}.length", len(items)
        for index, item in enumerate(items):
            yield from _leaves(item, f"{path}.{index}", kind)
    elif kind != "program":
        yield path, WRITTEN_NOW.sub("…", _neutral(value)) if isinstance(value, str) else value
    elif not isinstance(value, float) and not MEASURED.search(path):
        yield path, UNSTABLE.sub("…", value) if isinstance(value, str) else value


def _neutral(text: str) -> str:
    """The text without the folders of this machine. A path that is relative to a receipt leads up
    to the folder that both share, which may be any above the checkout."""
    return FROM_RECEIPT.sub("../../../src/compilediag", text.replace(str(ROOT), "/src/compilediag"))


if __name__ == "__main__":
    sys.exit(main())
