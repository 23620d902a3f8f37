"""`compilediag repro`: a small program that compiles again for the cause of a finding."""

from __future__ import annotations

import os
from dataclasses import dataclass

from compilediag.commands.receipts import format_suffix, load_finding
from compilediag.commands.subcommand import subcommand
from compilediag.commands.terminal import get_render_options, write, write_document
from compilediag.errors import OutputUnwritable, ReproImpossible, UsageError
from compilediag.extensions.repro.script import build_script
from compilediag.json_document import Document
from compilediag.option_fields import argument, flag, option, receipt_argument
from compilediag.readers.storage import open_regular
from compilediag.receipt.schema.compiles import FindingRecord
from compilediag.receipt.schema.receipt import Receipt
from compilediag.views.lookups import list_compiles
from compilediag_harness.redaction.redactor import Redactor, list_secret_values

AROUND = 3
"""Lines quoted before and behind the one to blame."""
MAX_BYTES = 4 << 20
"""A larger file is not quoted from."""


@dataclass(frozen=True, slots=True)
class ReproOptions:
    """The finding, and where to write its program."""

    finding: str = argument(metavar="N|KEY")
    receipt: str | None = receipt_argument()
    output: str | None = option(
        "-o --output FILE", "Where to write it (default: repro_N.py); - prints it."
    )
    as_json: bool = flag("--json", "Print it as JSON; without --output, write no file.")


class ReproDocument(Document, frozen=True, kw_only=True):
    """The output of `repro --json`."""

    receipt_id: str
    finding: str
    """Its id."""
    program: str
    file: str | None
    """Where it was written; null where it was not."""
    next: str


@subcommand(
    "repro",
    ReproOptions,
    examples="""\
  compilediag repro 1                    writes repro_1.py for finding 1 of the latest run
  compilediag repro 2 run --output x.py  for finding 2 of another run
  compilediag repro 1 --output -         prints it
""",
)
def command(options: ReproOptions) -> None:
    """Write a small program that shows the cause of finding N.

    It is made from the receipt alone and runs none of your code: a function with the same kind of
    guard on the same variable and values. If that is impossible, the reason is printed and the exit
    code is 2. RECEIPT is a receipt file or the folder of a run; the default is the latest run.
    """
    receipt, finding = load_finding(options.finding, options.receipt)
    index = int(finding.id[1:])
    try:
        text = build_program(index, receipt)
    except ReproImpossible as error:
        title = f"finding {index}, {finding.rule} {finding.slug}"
        raise ReproImpossible(f"no small program for {title}: {error}") from error
    if options.as_json:
        file = None if options.output == "-" else options.output
        if file is not None:
            _write_new(file, text)
        document = ReproDocument(
            schema="compilediag.repro",
            receipt_id=receipt.receipt_id,
            finding=finding.id,
            program=text,
            file=file,
            next=f"compilediag run {file or 'PROGRAM.py'}",
        )
        write_document(document)
        return
    if options.output == "-":
        write(text)
        return
    file = f"repro_{index}.py" if options.output is None else options.output
    _write_new(file, text)
    hint = f"\n  next: compilediag run {file} · compilediag explain {index}"
    write(f"Wrote {get_render_options().clean(file)}\n{hint}{format_suffix(options.receipt)}\n")


def build_program(index: int, receipt: Receipt) -> str:
    """Build a small program for finding 1, 2, … of a receipt.

    Raises:
        ReproImpossible: none can be made of it.
    """
    finding = receipt.findings[index - 1]
    # Shapes of the calls of the callable that was compiled again, where one is known as that.
    frames = {(event.frame.file, event.frame.line) for event in list_compiles(finding, receipt)}
    calls = [call for call in receipt.invocations if (call.file, call.line) in frames]
    inputs = calls[0].shapes[0].shapes if calls and calls[0].shapes else None
    return build_script(index, finding, _quote_lines(finding), inputs)


def _write_new(file: str, text: str) -> None:
    """Write a file that is not there yet: a script that exists may have been changed by hand.

    Raises:
        UsageError: it exists.
        OutputUnwritable: it cannot be written.
    """
    try:
        with open(file, "x", encoding="utf-8", errors="backslashreplace") as stream:
            stream.write(text)
    except FileExistsError as error:
        advice = "name another file with --output"
        raise UsageError(f"{file} exists and stays as it is: {advice}") from error
    except OSError as error:
        raise OutputUnwritable(f"{file} cannot be written: {error.strerror or error}") from error


def _quote_lines(finding: FindingRecord) -> list[str]:
    """Quote the user's lines around the place to blame; none where the file is gone."""
    place = finding.location
    stream = open_regular(place.file) if place is not None and place.file.endswith(".py") else None
    if place is None or stream is None:
        return []
    with stream:
        if os.fstat(stream.fileno()).st_size > MAX_BYTES:
            return []
        lines = stream.read().decode("utf-8", "replace").splitlines()
    if not 0 < place.line <= len(lines):
        return []
    redactor = Redactor(list_secret_values((), os.environ))
    first = max(place.line - AROUND, 1)
    shown = lines[first - 1 : place.line + AROUND]
    return [
        f"{'>' if index == place.line else ' '} {index:>4}  {redactor.redact_text(line)}"
        for index, line in enumerate(shown, first)
    ]
