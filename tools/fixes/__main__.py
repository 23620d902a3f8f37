"""Runs `compilediag fix` on the scenarios, checks each proof, writes docs/project/fixes.md.

    python tools/fixes [--results FOLDER] [--page-only] [SCENARIO ...]

Each scenario's result is a file below build/fixes: naming scenarios runs those again, and the page
is written from all results that are there. No name runs all. `make fixes` calls it. The exit code
is 1 where a plain run contradicts a certificate.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path

from page import Result, contradictions, rendered
from trying import names, tried

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "project" / "fixes.md"
PUBLIC = Path(__file__).with_name("public_programs.json")
"""What was measured on public programs, by hand."""


def main() -> int:
    """1 where a certificate is contradicted, 2 for an unknown name, else 0."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("scenarios", nargs="*", metavar="SCENARIO")
    parser.add_argument("--results", type=Path, default=ROOT / "build" / "fixes")
    parser.add_argument("--page-only", action="store_true", help="run nothing")
    asked = parser.parse_args()
    if unknown := sorted({*asked.scenarios} - {*names()}):
        print(f"no scenario {', '.join(unknown)}", file=sys.stderr)
        return 2
    asked.results.mkdir(parents=True, exist_ok=True)
    chosen: list[str] = [] if asked.page_only else asked.scenarios or names()
    for name in chosen:
        result = tried(name, asked.results / name)
        text = json.dumps(result, indent=1) + "\n"
        (asked.results / f"{name}.json").write_text(text, encoding="utf-8")
        proved = sum(item["proof"] is not None for item in result["findings"])
        print(f"{name}: {proved} of {len(result['findings'])}", flush=True)
    found: list[Result] = [
        json.loads(path.read_text(encoding="utf-8"))
        for name in names()
        if (path := asked.results / f"{name}.json").is_file()
    ]
    public = json.loads(PUBLIC.read_text(encoding="utf-8"))
    PAGE.write_text(rendered(found, names(), public), encoding="utf-8")
    print(f"Wrote {PAGE.relative_to(ROOT)}")
    contradicted = contradictions(found)
    for line in contradicted:
        print(f"contradicted: {line}", file=sys.stderr)
    return int(bool(contradicted))


if __name__ == "__main__":
    sys.exit(main())
