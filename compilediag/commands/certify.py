"""`compilediag certify`: proves that a change, whoever made it, makes a program better and changes
no result."""

from __future__ import annotations

import json
import os
import shlex
from dataclasses import dataclass

import click
from msgspec.structs import replace

from compilediag.certify.document import CertificateDocument, make_document
from compilediag.certify.points import Verdict
from compilediag.commands.subcommand import subcommand
from compilediag.commands.target import TargetCommand, make_announcer
from compilediag.commands.terminal import format_json, get_render_options, write, write_message
from compilediag.errors import EXIT_GATE, EXIT_OK, EXIT_UNDECIDED, OutputUnwritable, UsageError
from compilediag.json_document import convert_to_builtins
from compilediag.option_fields import argument, flag, option
from compilediag.receipt.file import write_receipt
from compilediag.receipt.locate import get_receipt_path
from compilediag.receipt.proofs import CERTIFIED, compute_sources_digest
from compilediag.receipt.schema.compiles import ProofPoint, ProofRecord
from compilediag.receipt.schema.receipt import Receipt
from compilediag.runs.certify.execute import Proof, Settings, certify
from compilediag.runs.certify.states import StateRequest, States, parse_setting, select_states
from compilediag.runs.supervised.run_options import check_positive
from compilediag.views import markdown, terminal
from compilediag.views.certificate import show_certificate
from compilediag_harness.base import atomic_write

NAME = "certificate.json"
"""Beside the receipt of the new state."""

_EXIT_CODES: dict[Verdict, int] = {
    "proved": EXIT_OK,
    "refused": EXIT_GATE,
    "not decided": EXIT_UNDECIDED,
}


@dataclass(frozen=True, slots=True)
class CertifyOptions:
    """The program, its two states, and how the proof is shown."""

    target: tuple[str, ...] = argument(
        default=(), nargs=-1, type=click.UNPROCESSED, metavar="TARGET [ARGS]..."
    )
    base: str | None = option("--base REF", "The old state: a branch, tag or commit.")
    against: str | None = option("--against DIR", "The old state: another folder; without git.")
    patch: str | None = option("--patch FILE", "The new state: the files with a diff.")
    env: tuple[str, ...] = option(
        "--env NAME=VALUE", "The new state: with this variable.", default=(), multiple=True
    )
    config: tuple[str, ...] = option(
        "--config NAME=VALUE",
        "The new state: with this option, such as torch._dynamo.config.recompile_limit=16.",
        default=(),
        multiple=True,
    )
    also: tuple[str, ...] = option(
        "--also COMMAND",
        "A further command line that must give the same: 'train.py --seq 512'.",
        default=(),
        multiple=True,
    )
    with_untracked: bool = flag(
        "--with-untracked", "Python files that git does not know are a part of the change."
    )
    no_vary: bool = flag("--no-vary", "Make no calls with other inputs; the proof says so.")
    keep_caches: bool = flag("--keep-caches", "Use the existing compile caches, not empty ones.")
    timeout_s: float | None = option(
        "--timeout S",
        "End each execution after S seconds; default: 4 times the old state's, and a minute.",
        type=float,
        check=check_positive,
    )
    everything: bool = flag("--all", "Show every case behind each point.")
    as_md: bool = flag("--md", "Print it as Markdown, for a pull request.")
    as_json: bool = flag("--json", "Print it as JSON, at most 2 kB without --all.")
    quiet: bool = flag("-q --quiet", "Show no progress.")


@subcommand(
    "certify",
    CertifyOptions,
    examples="""\
  compilediag run --record train.py --lr 3e-4    before the edit
  compilediag certify -- train.py --lr 3e-4      after it: the files against the recorded run
  compilediag certify --base main -- train.py    against another commit
  compilediag certify --patch change.diff -- train.py
  compilediag certify --env TORCHDYNAMO_CAPTURE_SCALAR_OUTPUTS=1 -- train.py
  compilediag certify --also "train.py --seq 512" -- train.py
""",
    cls=TargetCommand,
    context_settings={"ignore_unknown_options": True, "allow_interspersed_args": False},
)
def command(options: CertifyOptions) -> int:
    """Prove that a change makes a program better and changes no result.

    Two states of the program are executed and compared: the files as they are with the latest
    `run --record` of the same command line, else with the last commit. Nothing of yours is written.
    The exit code is 0 if the change is proved, 3 if it is refused, and 4 if it cannot be decided.
    """
    if not options.target:
        raise UsageError("name the program: `compilediag certify -- train.py`")
    words = options.target
    states = select_states(words, shlex.join(words), _make_request(options))
    announce = make_announcer(quiet=options.quiet)
    announce(f"{states.base} against {states.new}")
    settings = Settings(not options.no_vary, options.keep_caches, options.timeout_s, options.quiet)
    proof = certify(states, words, [shlex.split(text) for text in options.also], settings, announce)
    documents = [_make_document(states, proof, all=everything) for everything in (False, True)]
    brief, whole = documents
    _save(proof, whole)
    shown = whole if options.everything else brief
    if options.as_json:
        indent = format_json(convert_to_builtins(shown))
        write(indent if options.everything else json.dumps(convert_to_builtins(shown)) + "\n")
        return _EXIT_CODES[brief.verdict]
    screen = get_render_options()
    view = show_certificate(
        shown, states.new, proof.notes, screen, everything=options.everything, markdown=options.as_md
    )
    if options.as_md:
        write(markdown.render_overview(view, markdown.SIGNS[view.kind]))
    else:
        write(terminal.render_overview(view, screen))
        where = os.path.relpath(proof.folder)
        following = f"gate {where}" if brief.verdict == "proved" else f"show {where}"
        write("\n".join(screen.wrap_commands([following])) + "\n")
    return _EXIT_CODES[brief.verdict]


def _make_request(options: CertifyOptions) -> StateRequest:
    for text in options.env:
        if not text.partition("=")[0].strip() or "=" not in text:
            raise UsageError(f"--env {text}: write it as NAME=VALUE")
    pairs = [text.partition("=") for text in options.env]
    return StateRequest(
        base=options.base,
        against=options.against,
        patch=options.patch,
        env=tuple((name, value) for name, _, value in pairs),
        config=tuple(map(parse_setting, options.config)),
        with_untracked=options.with_untracked,
    )


def _make_document(states: States, proof: Proof, *, all: bool) -> CertificateDocument:
    change = states.change
    files = [os.path.relpath(file.file) for file in change.files]
    gone = [os.path.relpath(path) for path in sorted(change.before.keys() - change.after.keys())]
    return make_document(
        proof.certificate,
        base=states.base,
        change=(*files, *(f"{name} (gone)" for name in gone), *change.others),
        executions=proof.executions,
        everything=all,
    )


def _save(proof: Proof, document: CertificateDocument) -> None:
    """Write the certificate, the receipt of the new state with it, and, where it is proved, what
    removed them into the findings of the recorded run that are gone."""
    content = convert_to_builtins(document)
    extensions = {**proof.after.receipt.extensions, "certificate": content}
    try:
        text = format_json(content).encode()
        atomic_write.write(os.path.join(proof.folder, NAME), [text])
        receipt = replace(proof.after.receipt, extensions=extensions)
        write_receipt(receipt, get_receipt_path(proof.folder))
        if document.verdict == "proved":
            old = add_certified(proof.before.receipt, proof.after.receipt, document)
            recorded = proof.recorded
            folder = os.path.join(proof.folder, "old") if recorded is None else recorded.path
            write_receipt(old, get_receipt_path(folder))
    except (OSError, OutputUnwritable) as error:
        write_message(f"the certificate cannot be kept: {error}")


def add_certified(before: Receipt, after: Receipt, document: CertificateDocument) -> Receipt:
    """Add a certified change to the findings of the old state that the new one does not have."""
    remaining = {finding.key for finding in after.findings}
    digests = before.header.provenance.source_sha256
    proof = ProofRecord(
        kind=CERTIFIED,
        change=f"a change of {', '.join(document.change)}",
        risk="see the certificate: what it could not vary is listed there",
        runs=1,
        points=tuple(
            ProofPoint(
                name=point.name,
                passed=None if point.outcome == "stated" else point.outcome == "holds",
                sentence=point.sentence,
                figures=point.figures,
            )
            for point in document.points
        ),
        torch=before.environment.torch,
        sources=compute_sources_digest(digests, digests),
    )
    return replace(
        before,
        findings=tuple(
            finding
            if finding.key in remaining
            else replace(finding, fix=replace(finding.fix, proof=proof, verified=True))
            for finding in before.findings
        ),
    )
