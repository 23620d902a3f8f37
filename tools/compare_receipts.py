"""Compares the receipts that two checkouts write for the same programs and the same records.

    python tools/compare_receipts.py collect CHECKOUT OUT [--only NAME]
    python tools/compare_receipts.py compare BEFORE AFTER [BEFORE_AGAIN]

`collect` runs both programs of every scenario under the compilediag of CHECKOUT (with the Python of
its `.venv`), and lets it analyze every recorded trace, text log and trainer log; the programs and
records are those of this checkout. `compare` lists every field that differs, is lost or is new,
but for ids, times and links; numbers that were measured are compared where a record was read, not
where a program ran, which gives others each time. Where BEFORE_AGAIN, a second collection of the
same checkout, differs from BEFORE as well, the field is no property of the code: left out too.
"""

from __future__ import annotations

import argparse
import json
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

ROOT = Path(__file__).resolve().parent.parent
DATA = ROOT / "tests" / "data"
LIMIT_S = 600
ABSENT = "(absent)"

VOLATILE = re.compile(
    r"(^|\.)(receipt_id|run_id|created_at_utc|pid|started_at_utc|ended_at_utc|hostname|uri|sha256"
    r"|size_bytes|argv_redacted|cwd|git_\w+|source_sha256|load\w*|overhead|goodput|cost|memory"
    r"|artifacts|environment|provenance|graph_break_us|guard_eval_us|peak_bytes|bytes)(\.|$)"
)
"""Fields that differ from run to run of the same code."""
NEW = re.compile(r"\.finding$")
"""Fields that this comparison expects to be new: the finding's id on causes and breaks."""
UNSTABLE = re.compile(r"0x[0-9a-f]+|\b\d{12,}\b|[^'\"\s]*/\.venv/|\d+(\.\d+)?(?= ?(%|ms|/s|times))")
"""In texts: addresses, ids of objects, the folder of the environment, measured numbers."""
MEASURED = re.compile(
    r"(steps\.sketch|steps\.spikes|journal_records|_s|_ms|_us|_bytes|_fraction|seconds|wall|cpu)(\.|$)"
)


def main() -> int:
    """1 where `compare` found a difference, else 0."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    commands = parser.add_subparsers(dest="command", required=True)
    collecting = commands.add_parser("collect")
    collecting.add_argument("checkout", type=Path)
    collecting.add_argument("out", type=Path)
    collecting.add_argument("--only", default="", help="part of the name of a scenario or record")
    comparing = commands.add_parser("compare")
    comparing.add_argument("folders", type=Path, nargs="+", metavar="BEFORE AFTER [BEFORE_AGAIN]")
    options = parser.parse_args()
    if options.command == "collect":
        collect(options.checkout.resolve(), options.out.resolve(), options.only)
        return 0
    return compare(*options.folders)


def collect(checkout: Path, out: Path, only: str) -> None:
    """Writes one `NAME.json` for each program and record into `out`."""
    out.mkdir(parents=True, exist_ok=True)
    program = [str(checkout / ".venv" / "bin" / "compilediag")]
    for path in sorted((ROOT / "scenarios").glob("*/*.py")):
        name = f"{path.parent.name}-{path.stem}"
        if path.stem in {"broken", "fixed"} and only in name:
            arguments = ["run", "--quiet", "--no-live", "--output", str(out / "runs" / name)]
            _receipts("program", [*program, *arguments, "--", str(path)], out, name, path.parent)
    records = [*DATA.glob("traces*/*.gz"), DATA / "traces" / "ranks", *DATA.glob("torch_logs*.txt")]
    for path in sorted([*records, *DATA.glob("train_logs/*.log")]):
        name = f"{path.parent.name}-{path.name}"
        if only in name:
            arguments = ["analyze", str(path), "--output", str(out / "runs" / name)]
            _receipts("record", [*program, *arguments], out, name, ROOT)


def _receipts(kind: str, command: list[str], out: Path, name: str, cwd: Path) -> None:
    ended = subprocess.run(command, cwd=cwd, capture_output=True, timeout=LIMIT_S, check=False)
    found = sorted((out / "runs" / name).rglob("receipt*.json"))
    for index, path in enumerate(found):
        kept = json.loads(path.read_text(encoding="utf-8"))
        text = json.dumps({"kind": kind, "exit_code": ended.returncode, "receipt": kept}, indent=1)
        (out / f"{name}{f'-{index}' if index else ''}.json").write_text(text, encoding="utf-8")
    if not found:
        print(f"{name}: no receipt (exit code {ended.returncode})", file=sys.stderr)


def compare(before: Path, after: Path, again: Path | None = None) -> int:
    """Prints every difference; 1 where there is one."""
    names = sorted({path.name for folder in (before, after) for path in folder.glob("*.json")})
    wrong = 0
    for name in names:
        if not (before / name).exists() or not (after / name).exists():
            print(f"{name}: only in {before if (before / name).exists() else after}")
            wrong += 1
            continue
        unstable: set[str] = set()
        if again is not None and (again / name).exists():
            unstable = set(_differences(_fields(before / name), _fields(again / name)))
        left, right = _fields(before / name), _fields(after / name)
        for field, (was, now) in _differences(left, right).items():
            if field not in unstable:
                print(f"{name}: {field}: {was!r} -> {now!r}")
                wrong += 1
    print(f"{len(names)} receipts compared, {wrong} differences")
    return int(wrong > 0 or not names)


def _differences(
    left: dict[str, object], right: dict[str, object]
) -> dict[str, tuple[object, object]]:
    fields = [field for field in {**left, **right} if not NEW.search(field)]
    pairs = {field: (left.get(field, ABSENT), right.get(field, ABSENT)) for field in fields}
    return {field: (was, now) for field, (was, now) in pairs.items() if was != now}


def _fields(path: Path) -> dict[str, object]:
    document = json.loads(path.read_text(encoding="utf-8"))
    return dict(_leaves(document, "", measured=document["kind"] == "record"))


def _leaves(value: Any, path: str, *, measured: bool) -> Iterator[tuple[str, object]]:
    """Every field that the same code gives again, by its path; a list counts as one field more."""
    if VOLATILE.search(path):
        return
    if isinstance(value, dict):
        for key, item in cast(dict[str, Any], value).items():
            yield from _leaves(item, f"{path}.{key}" if path else key, measured=measured)
    elif isinstance(value, list):
        items = cast(list[Any], value)
        yield f"{path}.length", len(items)
        for index, item in enumerate(items):
            yield from _leaves(item, f"{path}.{index}", measured=measured)
    elif measured or (not isinstance(value, float) and not MEASURED.search(path)):
        yield path, UNSTABLE.sub("…", value) if isinstance(value, str) else value


if __name__ == "__main__":
    sys.exit(main())
