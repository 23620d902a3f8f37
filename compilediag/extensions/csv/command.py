"""`compilediag csv`: the compiles of a receipt as CSV (RFC 4180, lines end with a line feed)."""

from __future__ import annotations

from dataclasses import dataclass

from compilediag.commands.receipts import load_receipt
from compilediag.commands.subcommand import subcommand
from compilediag.commands.terminal import write, write_document
from compilediag.json_document import Document
from compilediag.option_fields import flag, receipt_argument
from compilediag.receipt.schema.compiles import CompileEvent
from compilediag.receipt.schema.receipt import Receipt
from compilediag.views.text import clean

COLUMNS = (
    *("process", "compile_id", "epoch", "file", "line", "function", "step", "kind"),
    *("seconds", "graph_ops", "guards", "causes", "variable"),
)

Cell = str | int | float | None


@dataclass(frozen=True, slots=True)
class CsvOptions:
    """The receipt whose compiles are written."""

    receipt: str | None = receipt_argument()
    as_json: bool = flag("--json", "Print the rows as JSON.")


class CsvDocument(Document, frozen=True, kw_only=True):
    """What `csv --json` prints."""

    receipt_id: str
    columns: tuple[str, ...]
    rows: tuple[tuple[Cell, ...], ...]
    """A row for each compile, parallel to `columns`; null where it was not measured."""


@subcommand(
    "csv",
    CsvOptions,
    examples="""\
  compilediag csv > compiles.csv         the compiles of the latest run
  compilediag csv run/receipt.json       those of another run
""",
)
def command(options: CsvOptions) -> None:
    """Write the compiles of a run as CSV.

    One line for each compile, in the order of the receipt, with the variable of its first cause.
    RECEIPT is a receipt file or the folder of a run; the default is the latest run.
    """
    _, receipt = load_receipt(options.receipt)
    rows = tuple(map(make_row, receipt.compile.events))
    if options.as_json:
        document = CsvDocument(
            schema="compilediag.csv", receipt_id=receipt.receipt_id, columns=COLUMNS, rows=rows
        )
        write_document(document)
        return
    write(render_csv(receipt))


def render_csv(receipt: Receipt) -> str:
    """Render the compiles of a receipt, with a line of names first."""
    rows = (COLUMNS, *map(make_row, receipt.compile.events))
    return "".join(f"{','.join(map(_quote, row))}\n" for row in rows)


def make_row(event: CompileEvent) -> tuple[Cell, ...]:
    """Make the cells of one compile, parallel to `COLUMNS`."""
    first = event.causes[0] if event.causes else None
    return (
        *(event.process, clean(event.compile_id), event.epoch),
        *(clean(event.frame.file), event.frame.line, clean(event.frame.function)),
        *(event.step, event.kind, event.seconds, event.graph_ops, event.guards),
        *(len(event.causes), None if first is None else clean(first.variable)),
    )


def _quote(cell: Cell) -> str:
    """Quote a cell; a spreadsheet must not take text of the target for a formula."""
    text = "" if cell is None else str(cell)
    if isinstance(cell, str) and text.startswith(("=", "+", "-", "@")):
        text = f"'{text}"
    return '"{}"'.format(text.replace('"', '""')) if "," in text or '"' in text else text
