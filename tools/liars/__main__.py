"""Tries to get false proofs, and counts the right ones: liars, mutants, and honest changes.

    python tools/liars [--liars 2000] [--improving 200] [--plain]   goes on where it was
    python tools/liars --show "mutant 40.3"                         the two states of a case
    python tools/liars --reduce "mutant 40.3"                       a small program that shows it

`make liars` calls it. The exit code is 1 where a change was proved that a plain run contradicts.
"""

from __future__ import annotations

import argparse
import contextlib
import sys
from pathlib import Path

from campaign import (
    ROOT,
    Certifier,
    find_failures,
    find_texts,
    judge_keys,
    read_results,
    run_campaign,
    start_command,
)
from measure import compare, load_torch, run_plain
from proofs_page import insert_tables, write_tables
from reduce import reduce_pair

PAGE = ROOT / "docs" / "project" / "proofs.md"


def main() -> int:
    """1 where a proof is false, else 0."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--liars", type=int, default=2000, help="mutants that are wrong")
    parser.add_argument("--improving", type=int, default=200)
    parser.add_argument("--first", type=int, default=0, help="seed of the first program")
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--results", type=Path, default=ROOT / "build" / "liars" / "results.jsonl")
    parser.add_argument("--plain", action="store_true", help="measure alone, without certify")
    parser.add_argument("--page", action="store_true", help="only write the page")
    parser.add_argument("--only", metavar="KEY", nargs="+", help="judge these cases")
    parser.add_argument("--show", metavar="KEY")
    parser.add_argument("--reduce", metavar="KEY")
    asked = parser.parse_args()
    if asked.show:
        before, after = find_texts(asked.show)
        print(before, "# " + "-" * 78, after, sep="\n")
        return 0
    if asked.reduce:
        with start_command() as command:
            _reduce(asked.reduce, command)
        return 0
    with contextlib.nullcontext() if asked.plain or asked.page else start_command() as command:
        if asked.only:
            judge_keys(asked.results, command, asked.only)
        elif not asked.page:
            run_campaign(
                asked.results,
                command,
                mutants=asked.liars,
                improving=asked.improving,
                first=asked.first,
                workers=asked.workers,
            )
    results = [*read_results(asked.results).values()]
    tables = write_tables(results, f"make liars LIARS={asked.liars} IMPROVING={asked.improving}")
    print(tables)
    if not asked.plain and not asked.only:
        page = PAGE.read_text(encoding="utf-8") if PAGE.is_file() else ""
        PAGE.write_text(insert_tables(page, tables), encoding="utf-8")
    failures = find_failures(results)
    for one in failures:
        print(f"FALSE PROOF: {one['key']}, {one['kind']}, {one['what']}: {one['where']}")
        print(f"    make liars LIARS_ARGS=\"--reduce '{one['key']}'\"")
    return int(bool(failures))


def _reduce(key: str, command: Path) -> None:
    load_torch()

    def is_false_proof(before: str, after: str) -> bool:
        first, second = run_plain(before), run_plain(after)
        if first.exit_code != 0 or compare(first, second, run_plain(before)).kind != "wrong":
            return False
        with Certifier(command, before) as certifier:
            return certifier.judge(after).verdict == "proved"

    before, after = reduce_pair(*find_texts(key), is_false_proof)
    print(before, "# " + "-" * 78, after, sep="\n")


if __name__ == "__main__":
    sys.exit(main())
