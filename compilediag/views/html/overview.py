"""The head of a report: the verdict with its counts, what ran where, and what is not known."""

from __future__ import annotations

from dataclasses import dataclass

from compilediag.receipt.schema.receipt import Receipt
from compilediag.views.against_eager import against_eager_sentence, numbers_sentence
from compilediag.views.cold_and_warm import cold_and_warm_sentence
from compilediag.views.format import count, quantity
from compilediag.views.headline import ending, headline, reasons, trainer_figures, trainer_notes
from compilediag.views.lookups import main_findings
from compilediag.views.settings import joined_exports
from compilediag.views.style import RenderOptions

_SHA_CHARS = 12


@dataclass(frozen=True, slots=True)
class Overview:
    """Texts of the head."""

    title: str
    kind: str
    """"good", "bad", "warn" or "blind"."""
    sentence: str
    counts: tuple[str, ...]
    notes: tuple[str, ...]
    """How the program ended, and what its trainer wrote."""
    facts: tuple[tuple[str, str], ...]
    unknown: tuple[tuple[str, str], ...]
    """What is not known, and what to do about it."""
    measured: tuple[tuple[str, str], ...]
    exports: tuple[str, ...]
    """Settings for all findings together."""


def overview(receipt: Receipt, options: RenderOptions) -> Overview:
    """The head of the report of a run."""
    head = headline(receipt)
    ended = ending(receipt)
    figures = options.dot.join(options.text(each, 80) for each in trainer_figures(receipt))
    notes = [ended, figures, *trainer_notes(receipt)]
    return Overview(
        title=_title(receipt, options),
        kind=head.kind,
        sentence=options.text(head.sentence),
        counts=head.counts,
        notes=tuple(options.text(each) for each in notes if each),
        facts=tuple(_facts(receipt, options)),
        unknown=tuple(_unknown(receipt, options)),
        measured=tuple((name, options.text(each)) for name, each in _measured(receipt)),
        exports=tuple(
            options.text(line, 4096)
            for line in joined_exports(item for _, item in main_findings(receipt))
        ),
    )


def _title(receipt: Receipt, options: RenderOptions) -> str:
    return options.text(" ".join(receipt.header.run.argv_redacted) or receipt.header.lane.name, 120)


def _facts(receipt: Receipt, options: RenderOptions) -> list[tuple[str, str]]:
    header, machine = receipt.header, receipt.environment
    found = [
        ("command", " ".join(header.run.argv_redacted)),
        ("started", header.created_at_utc),
        ("torch", machine.torch),
        ("Python", machine.python),
        ("machine", _machine(receipt)),
        ("lane", header.lane.name),
        ("commit", _commit(receipt)),
        ("receipt", receipt.receipt_id),
        ("written by", f"{header.producer.name} {header.producer.version}"),
    ]
    return [(name, options.text(value, 1000)) for name, value in found if value]


def _machine(receipt: Receipt) -> str:
    machine = receipt.environment
    parts = [
        machine.os,
        machine.cpu_model,
        None if machine.cpu_count is None else count(machine.cpu_count, "CPU"),
        None if machine.ram_bytes is None else quantity(machine.ram_bytes, "bytes"),
        None if machine.gpus is None else count(len(machine.gpus), "GPU"),
    ]
    return ", ".join(part for part in parts if part)


def _commit(receipt: Receipt) -> str:
    code = receipt.header.provenance
    if code.git_commit is None:
        return ""
    branch = f" on {code.git_branch}" if code.git_branch else ""
    changed = " with local changes" if code.git_dirty else ""
    return f"{code.git_commit[:_SHA_CHARS]}{branch}{changed}"


def _unknown(receipt: Receipt, options: RenderOptions) -> list[tuple[str, str]]:
    """Reasons with remedies; nothing where all was seen."""
    whole = receipt.completeness
    found = dict[str, str]()
    if receipt.verdict == "blind":
        found |= {why: remedy or "" for why, remedy in reasons(receipt)}
    found |= {f"sources differ: {each}": "" for each in whole.differences}
    lost = sum(whole.records_lost.values())
    if lost:
        found[f"{count(lost, 'record')} of the run got lost"] = ""
    if whole.ranks_expected is not None and len(whole.ranks_present) < whole.ranks_expected:
        present = f"{len(whole.ranks_present)} of {whole.ranks_expected} ranks reported"
        found.setdefault(present, "")
    return [(options.text(why), options.text(remedy)) for why, remedy in found.items()]


def _measured(receipt: Receipt) -> list[tuple[str, str]]:
    found: list[tuple[str, str]] = []
    if receipt.against_eager is not None:
        found.append(("against eager", against_eager_sentence(receipt.against_eager)))
        if receipt.against_eager.numbers is not None:
            found.append(("numbers", numbers_sentence(receipt.against_eager.numbers)))
    if receipt.cold_and_warm is not None:
        found.append(("second start", cold_and_warm_sentence(receipt.cold_and_warm)))
    return found
