"""The tables of docs/project/proofs.md that come from the campaign."""

from __future__ import annotations

import datetime as dt
import platform
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from importlib.metadata import version
from typing import Any

BEGIN, END = "<!-- liars: written by make liars -->", "<!-- liars: end -->"

_HEAD = """# Attempts to get a false proof

[certify](../reference/certify.md) says of a change "proved", "refused" or "not decided". "Proved"
must be true. Each table below is one attempt to get it for a change that does harm, and
counts how often it is said of changes that only improve. The tables are written by the command
beside them; a number that is not good stays in them.
"""

REASONS = ("verdict", "reason", "changes", "for example")

Results = Sequence[Mapping[str, Any]]


def insert_tables(page: str, tables: str) -> str:
    """Puts the tables between their marks, which a page without them gets at its end."""
    if BEGIN not in page:
        page = f"{page or _HEAD}\n{BEGIN}\n{END}\n"
    head, rest = page.split(BEGIN, 1)
    return f"{head}{BEGIN}\n\n{tables}\n{END}{rest.split(END, 1)[1]}"


def write_tables(results: Results, command: str) -> str:
    """Writes what was tried, proved, refused and left open."""
    liars, mutants, improving = (
        [one for one in results if one["group"] == group]
        for group in ("liar", "mutant", "improving")
    )
    by_truth = {
        truth: [one for one in mutants if one["truth"] == truth]
        for truth in ("wrong", "smaller", "equal", "crashes", "hangs")
    }
    edits = [one for one in improving if not one["environment"]]
    rows = [
        ("liars, written by hand", liars),
        ("mutants that are wrong by more than ten times the tolerance", by_truth["wrong"]),
        ("… of these better by torch's counts", [x for x in by_truth["wrong"] if x["better"]]),
        ("mutants that are wrong by one to ten times the tolerance", by_truth["smaller"]),
        ("changes that improve and change nothing", improving),
        ("… of these edits of the program, not settings", edits),
    ]
    plain, certified = (sum(one[name] for one in results) for name in ("plain_s", "certify_s"))
    versions = f"torch {version('torch')}, Python {platform.python_version()}, CPU"
    today = dt.datetime.now(dt.timezone.utc).date()
    how = (
        f"Written by `{command}` on {today} with {versions}. Programs, changes and mutants are "
        "made from seeds; `--show KEY` shows the two states of one. The truth of each case is "
        "two plain runs, compared by `tools/liars/plain_runs.py`, which imports nothing of "
        "compilediag. The old state is recorded once (`run --record`) and each change is "
        "certified against that run. Liars and mutants are certified with `--no-vary` first, "
        "and as users do unless that refuses: other inputs only add to what has to hold. LIARS "
        "and IMPROVING say how many are wanted, the table how many there are: a campaign goes "
        "on where it was ended, and each case was judged by the compilediag of its time."
    )
    others = (
        f"A further {len(by_truth['crashes'])} mutants raised an error, {len(by_truth['hangs'])} "
        f"did not end and {len(by_truth['equal'])} changed nothing that a plain run shows: they "
        f"were not certified. Plain runs took {plain:.0f} s, certificates {certified:.0f} s."
    )
    lines = [
        "## Liars and mutants",
        "",
        how,
        "",
        *_write_table(
            ("", "cases", "proved", "refused", "not decided"),
            ((name, len(of), *_count_verdicts(of)) for name, of in rows),
        ),
        "",
        others,
        "",
        "### Liars by kind",
        "",
        *_write_table(
            ("kind", "liars", "proved", "given away by"),
            (
                (
                    kind,
                    len(of),
                    _count_verdicts(of)[0],
                    ", ".join(dict.fromkeys(x["truth"] for x in of)),
                )
                for kind, of in _group(liars, "kind")
            ),
        ),
        "",
        "### Mutants by kind",
        "",
        *_write_table(
            ("kind", "mutants", "wrong", "proved"),
            (
                (kind, len(of), len(wrong), _count_verdicts(wrong)[0])
                for kind, of in _group(mutants, "kind", join=" and ")
                for wrong in [[x for x in of if x["truth"] == "wrong"]]
            ),
        ),
        "",
        "### Improving changes that were not proved",
        "",
        *_write_table(REASONS, _count_reasons(improving)),
        "",
        "### Liars and wrong mutants that were not refused",
        "",
        *_write_table(REASONS, _count_reasons([*liars, *by_truth["wrong"]], "refused")),
    ]
    return "\n".join(lines) + "\n"


def _count_verdicts(results: Results) -> tuple[str, int, int]:
    """Proved with its share, refused, not decided; a dash where certify was not asked."""
    counts = Counter(one["verdict"] for one in results)
    asked = len(results) - counts[""]
    share = f"{counts['proved']} ({counts['proved'] / asked:.1%})" if asked else "–"
    return share, counts["refused"], counts["not decided"]


def _count_reasons(results: Results, hoped: str = "proved") -> Iterable[tuple[Any, ...]]:
    """The reasons of another verdict, the most frequent first; numbers in them do not count."""
    groups: dict[tuple[str, str], list[Mapping[str, Any]]] = {}
    for one in results:
        if one["verdict"] not in ("", hoped):
            bare = "".join("#" if char.isdigit() else char for char in one["reason"])
            groups.setdefault((one["verdict"], bare[:60]), []).append(one)
    for (verdict, _), of in sorted(groups.items(), key=lambda item: -len(item[1])):
        yield verdict, of[0]["reason"], len(of), f"{of[0]['key']} ({of[0]['kind']})"


def _group(results: Results, field: str, join: str = "\0") -> Iterable[tuple[str, Results]]:
    """Group results by a field; those whose value joins two others are one group."""
    groups: dict[str, list[Mapping[str, Any]]] = {}
    for one in results:
        name = "two of these" if join in one[field] else one[field]
        groups.setdefault(name, []).append(one)
    return groups.items()


def _write_table(head: Sequence[str], rows: Iterable[Sequence[Any]]) -> list[str]:
    cells = [[str(cell).replace("|", "\\|") for cell in row] for row in rows]
    return [f"| {' | '.join(row)} |" for row in (head, ["---"] * len(head), *cells)]
