"""Code that runs eager though nothing breaks: generator functions, a switch that is on."""

from __future__ import annotations

from collections.abc import Iterator

from compilediag.fixes.candidates.case import Case
from compilediag.fixes.changes import Change
from compilediag.fixes.codemods.edit import Edit

_ALL_AT_ONCE = "all items are made and held at once, before the first is used"
_ON_PURPOSE = "compilation may have been switched off on purpose"


def compiled_at_all_candidates(case: Case) -> Iterator[Change]:
    """Edits after which torch compiles what it did not."""
    if case.finding.rule == "CD904":
        yield from _generator(case)
    elif case.finding.rule == "CD901":
        yield from _of_files(case)


def _generator(case: Case) -> Iterator[Change]:
    place = case.finding.location
    reason = str(case.finding.evidence.get("reason") or "")
    if "generator" not in reason or place is None or not place.line or not case.is_own(place.file):
        return
    yield Change(
        "source",
        f"{place.file}:{place.line}: return a list instead of yielding",
        _ALL_AT_ONCE,
        edits=(Edit(place.file or "", place.line, "generator_as_list"),),
    )


def _of_files(case: Case) -> Iterator[Change]:
    """Whether a file of the program has such a statement, the codemods decide on its text."""
    for file in case.receipt.header.provenance.source_sha256:
        if case.finding.evidence.get("why") == "torch_modules":
            yield Change(
                "source",
                f"{file}: call what `torch.compile(module)` returns instead of `module.compile()`",
                "other code that holds the module still calls it uncompiled",
                edits=(Edit(file, 1, "compile_returned"),),
                through_wrapper=True,
            )
        yield Change(
            "source",
            f"{file}: without the variable of the environment that switches compilation off",
            _ON_PURPOSE,
            edits=(Edit(file, 1, "without_switch"),),
        )
