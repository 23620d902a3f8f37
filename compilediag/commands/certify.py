"""`compilediag certify`: proves that a change makes a program better and changes no result."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence

from msgspec.structs import replace

from compilediag.certify.points import Certificate, Verdict, convert_points
from compilediag.commands.subcommand import subcommand
from compilediag.commands.target import TargetCommand, make_announcer
from compilediag.commands.terminal import format_json, get_render_options, write, write_message
from compilediag.errors import EXIT_GATE, EXIT_OK, EXIT_UNDECIDED, OutputUnwritable, UsageError
from compilediag.json_document import convert_to_builtins
from compilediag.receipt.file import write_receipt
from compilediag.receipt.locate import get_receipt_path
from compilediag.receipt.proofs import CERTIFIED, compute_sources_digest
from compilediag.receipt.schema.compiles import ProofRecord
from compilediag.receipt.schema.receipt import Receipt
from compilediag.runs.certify.execute import Interrupted, Proof, make_proof
from compilediag.runs.certify.options import CertifyOptions
from compilediag.runs.certify.recorded import keep_proved
from compilediag.runs.certify.states import States, select_states
from compilediag.views import markdown, terminal
from compilediag.views.certificate import (
    CertificateDocument,
    describe_length,
    shorten_document,
    show_certificate,
)
from compilediag_harness.base import atomic_write

NAME = "certificate.json"
"""Beside the receipt of the new state."""

_EXIT_CODES: dict[Verdict, int] = {
    "proved": EXIT_OK,
    "refused": EXIT_GATE,
    "not decided": EXIT_UNDECIDED,
}


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
)
def command(options: CertifyOptions) -> int:
    """Prove that a change makes a program better and changes no result.

    Two states of the program are executed and compared: the files as they are with the latest
    `run --record` of the same command line, else with the last commit. Nothing of yours is written.
    The exit code is 0 if the change is proved, 3 if it is refused, and 4 if it cannot be decided.
    """
    if not options.target:
        raise UsageError("name the program: `compilediag certify -- train.py`")
    states = select_states(options)
    announce = make_announcer(quiet=options.quiet)
    length = ""
    if states.recorded is not None:
        length = describe_length(states.recorded.receipt, varies=not options.no_vary)
    announce(f"{states.base} against {states.new}{length}")
    try:
        proof = make_proof(states, options, announce)
    except Interrupted as end:
        if end.certificate is not None:
            _show(_make_document(states, end.certificate, end.executions), states, options, ())
        raise
    folder = os.path.relpath(proof.folder)
    whole = _make_document(states, proof.certificate, proof.executions, folder)
    _save(proof, whole)
    _show(whole, states, options, proof.notes)
    return _EXIT_CODES[whole.verdict]


def _show(
    whole: CertificateDocument, states: States, options: CertifyOptions, notes: Sequence[str]
) -> None:
    shown = whole if options.everything else shorten_document(whole, 1 if options.as_json else 4)
    if options.as_json:  # small without spaces
        indent, separators = (1, None) if options.everything else (None, (",", ":"))
        content = convert_to_builtins(shown)
        write(json.dumps(content, indent=indent, separators=separators) + "\n")
        return
    screen = get_render_options()
    view = show_certificate(shown, states.new, notes, screen, markdown=options.as_md)
    if options.as_md:
        write(markdown.render_overview(view, markdown.SIGNS[view.kind]))
        return
    write(terminal.render_overview(view, screen))
    if whole.folder:
        command = "gate" if whole.verdict == "proved" else "show"
        write("\n".join(screen.wrap_commands([f"{command} {whole.folder}"])) + "\n")


def _make_document(
    states: States, certificate: Certificate, executions: int, folder: str = ""
) -> CertificateDocument:
    change = states.change
    files = [os.path.relpath(file.file) for file in change.files]
    gone = [os.path.relpath(path) for path in sorted(change.before.keys() - change.after.keys())]
    return CertificateDocument(
        verdict=certificate.verdict,
        reason=certificate.reason,
        base=states.base,
        change=(*files, *(f"{name} (gone)" for name in gone), *change.others),
        folder=folder,
        executions=executions,
        points=certificate.points,
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
            recorded = proof.recorded
            # An execution of the old state that was made again is not what was recorded.
            before = proof.before if recorded is None else recorded
            old = add_certified(before.receipt, proof.after.receipt, document)
            folder = os.path.join(proof.folder, "old") if recorded is None else recorded.path
            write_receipt(old, get_receipt_path(folder))
            if recorded is not None:
                keep_proved(recorded, proof.after.receipt.header.provenance.source_sha256)
    except (OSError, OutputUnwritable) as error:
        write_message(f"the certificate cannot be kept: {error}")


def add_certified(before: Receipt, after: Receipt, document: CertificateDocument) -> Receipt:
    """Add a certified change to the findings of the old state that the new one does not have."""
    remaining = {finding.key for finding in after.findings}
    proof = ProofRecord(
        kind=CERTIFIED,
        change=f"a change of {', '.join(document.change)}",
        risk="see the certificate: what it could not vary is listed there",
        runs=1,
        points=convert_points(document.points),
        torch=before.environment.torch,
        sources=compute_sources_digest(before.header.provenance.source_sha256),
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
