"""`compilediag csv`: a line for each compile, cells that a spreadsheet reads as text."""

import csv

import msgspec
from command_line import FINDINGS

from compilediag import cli
from compilediag.extensions.csv.command import COLUMNS, make_row, render_csv
from compilediag.receipt.file import read_receipt


def test_every_compile_is_a_line(capsys) -> None:
    """What csv reads back are the values of the receipt; nothing measured is an empty cell."""
    assert cli.main(["csv", FINDINGS]) == 0
    events = read_receipt(FINDINGS).compile.events
    head, *rows = csv.reader(capsys.readouterr().out.splitlines())
    assert tuple(head) == COLUMNS
    expected = [["" if cell is None else str(cell) for cell in make_row(e)] for e in events]
    assert rows == expected
    assert len(rows) > 1


def test_text_of_the_target_is_no_formula_and_no_line() -> None:
    """A name that begins with "=", and one with a line break, quotation marks and a comma."""
    receipt = read_receipt(FINDINGS)
    event = receipt.compile.events[0]
    frame = msgspec.structs.replace(event.frame, file='=1+1,"x"', function="a\nb")
    changed = msgspec.structs.replace(event, frame=frame)
    compiles = msgspec.structs.replace(receipt.compile, events=(changed,))
    lines = render_csv(msgspec.structs.replace(receipt, compile=compiles)).splitlines()
    (row,) = csv.DictReader(lines)
    assert (row["file"], row["function"]) == ('\'=1+1,"x"', "a\\nb")
