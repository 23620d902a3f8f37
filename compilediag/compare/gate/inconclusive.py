"""Reasons why a receipt cannot be judged: what was not seen, or is another configuration's."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from msgspec import Struct

from compilediag.compare.gate.baseline import LOCK_NAME
from compilediag.compare.run_baseline import ConfigBaseline, Scalar, list_baseline_fields
from compilediag.diagnosis.codes import BLIND
from compilediag.receipt.schema.identity import Provenance
from compilediag.receipt.schema.receipt import Receipt

CHANGED = "changed"  #: In place of the digest of a file that was written while the run went on.
NO_FILE = ""  #: The digest of a file that does not exist.
_NAMED = 3
_COMMIT_DIGITS = 10
_TEXTS = (".md", ".rst", ".pyc", f"/{LOCK_NAME}")
"""Ends of the paths of tracked files that change nothing of what a program does."""


class WorkingTree(Struct, frozen=True):
    """The code that is checked out, for one receipt; paths are relative to the receipt's folder."""

    commit: str | None
    digests: Mapping[str, str | None]  #: Of the files the receipt has digests of; None: unreadable.
    changed: Sequence[str] | None  #: Tracked files that differ from the receipt's commit, if known.
    baseline: str | None = None  #: The baseline, which is no code.


class CodeComparison(Struct, frozen=True):
    """The code of a receipt and the code that is checked out."""

    #: Sentences why the receipt is not of this code; empty where nothing speaks against it.
    reasons: tuple[str, ...] = ()
    notices: tuple[str, ...] = ()


_ENDINGS = {
    "failed": "the run failed",
    "killed": "the run was killed",
    "interrupted": "the run was interrupted",
    "partial": "records of the run were lost",
}
_REASON_CHARS = 300
_TIMING_HOOKS = (
    *("compile_callback", "compiled_calls", "call_ends", "backward_calls", "saves"),
    *("cache_entries", "recompile_limit"),
)
"""Hooks of torch that no count needs: a torch in which one is gone can be judged all the same."""


def find_mismatches(receipt: Receipt, baseline: ConfigBaseline) -> list[str]:
    """Find fields of the configuration in which the receipt is not of the baseline; a field that
    the baseline does not have did not exist in the version that wrote it."""
    fields = list_baseline_fields(receipt)

    def show(value: Scalar) -> str:
        return "not set" if value is None else str(value)

    return [
        f"another configuration: {key} is {show(fields.get(key))} and in the baseline {show(value)}"
        for key, value in baseline.fields.items()
        if fields.get(key) != value
    ]


def find_inconclusive(receipt: Receipt) -> Iterable[str]:
    """Find sentences on what prevents judging, most important first; empty where nothing does."""
    if receipt.status != "complete":
        code = receipt.header.run.exit_code if receipt.status == "failed" else None
        with_code = f" with exit code {code}" if code is not None else ""
        reason = ((receipt.failure and receipt.failure.reason) or "").strip()[:_REASON_CHARS]
        why = f": {reason}" if reason else ""
        yield f"{_ENDINGS[receipt.status]}{with_code}, so the receipt is not of a whole run{why}"
    if receipt.header.configuration.past_limit:
        yield "the recompile limit was lifted in this run (--past-limit)"
    if receipt.verdict is None:
        yield "the receipt has no verdict"
    if receipt.verdict == "blind":
        blind = next((finding for finding in receipt.findings if finding.rule in BLIND), None)
        why = f": {blind.title or blind.slug.replace('-', ' ')}" if blind is not None else ""
        yield f"the receipt is blind{why}"
    lost, cost = receipt.completeness, receipt.overhead
    torn = [
        *(["the journal is torn"] if lost.journal_torn_tail else []),
        *(f"{count} records: {name}" for name, count in lost.records_lost.items() if count),
    ]
    # What is missing changes no count, and nothing else is missing.
    harmless = (
        len(list_harmless_losses(receipt)) == len(lost.reasons) > 0
        and not torn
        and lost.numbers.get("unended_processes") == 0
        and cost is not None
        and cost.records_dropped == 0
    )
    torn += lost.reasons[:2]
    if receipt.checks.evidence_complete is False and not harmless:
        yield "the evidence is not complete" + (f" ({'; '.join(torn)})" if torn else "")
    elif receipt.checks.evidence_complete is None:
        yield "it is not recorded whether the evidence is complete"
    if receipt.checks.all_ranks_reported is False:
        yield f"of {lost.ranks_expected} ranks only {len(lost.ranks_present)} reported"
    # Counts by file and by frame are taken from the list of frames.
    if any(reason.startswith("compile.frames_detail:") for reason in lost.reasons):
        part = receipt.compile
        yield f"only {len(part.frames_detail)} of {part.frames} frames are listed in the receipt"


def list_harmless_losses(receipt: Receipt) -> list[str]:
    """List what was not observed and changes no count."""
    names = tuple(f"{name}:" for name in _TIMING_HOOKS)
    return [reason for reason in receipt.completeness.reasons if reason.startswith(names)]


def is_code(path: str) -> bool:
    """True if a tracked file may change what a program does: documents and the baseline do not."""
    return not f"/{path}".endswith(_TEXTS)


def compare_code(ran: Provenance, here: WorkingTree) -> CodeComparison:
    """Compare the code that ran with the code that is checked out: reasons why they differ."""
    baseline = here.baseline
    sources = {p: d for p, d in ran.source_sha256.items() if p != baseline and is_code(p)}
    if not ran.source_sha256 and ran.git_commit is None:
        return CodeComparison(notices=("the receipt does not record which code it is of",))
    written = [path for path, digest in sources.items() if digest == CHANGED]
    other = [
        path
        for path, digest in sources.items()
        if digest != CHANGED and here.digests.get(path) != digest
    ]
    other += [
        path
        for path in here.changed or ()
        if path not in sources and path != baseline and is_code(path)
        # Not source that the run is known not to have imported.
        if not (ran.imports_complete is True and path.endswith(".py"))
    ]
    moved_on = None not in (ran.git_commit, here.commit) and ran.git_commit != here.commit
    then, now = ((commit or "")[:_COMMIT_DIGITS] for commit in (ran.git_commit, here.commit))
    reasons: list[str] = []
    if other:
        verb = "has" if len(other) == 1 else "have"
        of = f" (of commit {then}; {now} is checked out)" if moved_on else ""
        reasons.append(f"{_format_paths(other)} {verb} changed since the run{of}")
    if written:
        verb = "was" if len(written) == 1 else "were"
        reasons.append(f"{_format_paths(written)} {verb} written while the run went on")
    if here.changed is None and not reasons and moved_on:
        reasons.append(
            f"it is of commit {then}, and {now} is checked out; what differs between them cannot "
            "be looked up here"
        )
    return CodeComparison(tuple(f"the receipt is of other code: {reason}" for reason in reasons))


def _format_paths(paths: Sequence[str]) -> str:
    shown = ", ".join(paths[:_NAMED])
    more = len(paths) - _NAMED
    return f"{shown} and {more} more file{'s' if more > 1 else ''}" if more > 0 else shown
