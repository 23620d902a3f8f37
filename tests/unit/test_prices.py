"""What a run cost: by a table that was given, where it is known what ran; else not at all."""

import hashlib
from pathlib import Path
from typing import Any

import pytest

from compilediag.diagnosis.reconcile import Agreement
from compilediag.errors import UsageError
from compilediag.extensions.prices import (
    DEVICE,
    MACHINE,
    Price,
    PriceTable,
    parse_table,
    read_prices,
)
from compilediag.receipt.assemble import build_receipt
from compilediag.receipt.run_metadata import RunMetadata
from compilediag.receipt.schema.receipt import Receipt
from compilediag.receipt.schema.tracked import CostSection
from compilediag.rules.diagnose import Diagnosis
from compilediag.timeline.timeline import fold
from compilediag.views.style import RenderOptions
from compilediag.views.verdict import render
from compilediag_harness.wire import EnvironmentRead, ProcessStarted

TABLE = """
currency = "USD"
source = "finance"
as_of = 2026-11-01

[[device]]
name = "NVIDIA H100*"
per_hour = 2.0

[[device]]
name = "*"
per_hour = 9.0

[[machine]]
cpu = "AMD EPYC ?B13*"
per_hour = 0.5
"""
H100 = {"index": 0, "name": "NVIDIA H100 80GB HBM3"}
CPU = {"gpus": [], "cpu_model": "AMD EPYC 7B13 64-Core"}


def table(text: str = TABLE) -> PriceTable:
    """A table as the file has it."""
    import sys
    from importlib import import_module

    parser: Any = import_module("tomllib" if sys.version_info >= (3, 11) else "tomli")
    return parse_table(parser.loads(text), "prices.toml", "ab" * 32)


def receipt_of(
    facts: dict[str, Any], *, prices: PriceTable, ranks: int = 1, wall_s: float | None = 1800.0
) -> Receipt:
    """A run of half an hour on such a machine."""
    started = [
        ProcessStarted(0.0, 1, 7 + rank, 1, rank if ranks > 1 else None, ranks, (), "", "", "", "")
        for rank in range(ranks)
    ]
    journals = [[each, EnvironmentRead(0.1, facts)] for each in started]
    identity = ("01JD3Q0000000000000000000Z", "2026-11-20T14:45:00Z")
    nothing = Diagnosis((), "clean", Agreement({}, None, (), {}))
    return build_receipt(
        fold(journals), nothing, RunMetadata(*identity, prices=prices, wall_s=wall_s)
    )


def cost_of(*, ranks: int = 1, wall_s: float | None = 1800.0, **facts: Any) -> CostSection:
    """The cost with the table above."""
    return receipt_of(facts, prices=table(), ranks=ranks, wall_s=wall_s).cost


def test_a_device_a_rank() -> None:
    """One rank has all that it sees; of several each has one."""
    alone = cost_of(gpus=[H100, H100])
    assert (alone.amount, alone.count, alone.name) == (2.0, 2, H100["name"])
    many = cost_of(gpus=[H100] * 8, ranks=4)
    assert (many.amount, many.count, many.unit) == (4.0, 4, "device")
    assert (many.currency, many.per_hour, many.table) == ("USD", 2.0, "prices.toml")
    assert (many.table_as_of, many.table_source) == ("2026-11-01", "finance")
    assert many.table_sha256 == "ab" * 32


@pytest.mark.parametrize(
    ("facts", "says"),
    [
        ({}, "devices of the run were not seen"),
        ({"gpus": [{"index": None, "name": "Tesla T4"}]}, "used none of the 1 GPUs"),
        ({"gpus": [H100, {"index": 1, "name": "Tesla T4"}]}, "several kinds of devices"),
        ({"gpus": [], "cpu_model": None}, "name of the CPU is not known"),
        ({"gpus": [], "cpu_model": "Intel"}, "no price of a machine 'Intel'"),
        ({**CPU, "ranks": 4}, "4 ranks without a GPU"),
    ],
)
def test_what_is_not_known_is_not_priced(facts: dict[str, Any], says: str) -> None:
    """No amount, and the reason instead."""
    found = cost_of(**facts)
    assert (found.amount, found.recompile_amount) == (None, None)
    assert says in found.note


def test_no_wall_time() -> None:
    found = cost_of(**CPU, wall_s=None)
    said = "the wall time was not measured"
    assert (found.amount, found.per_hour, found.note) == (None, 0.5, said)


def test_the_first_line_that_fits() -> None:
    """Patterns are of the whole name; capitals do not matter, other marks mean themselves."""
    assert table().find_price(DEVICE, "nvidia h100 pcie") == Price("NVIDIA H100*", 2.0)
    assert table().find_price(DEVICE, "Tesla T4") == Price("*", 9.0)
    assert table().find_price(MACHINE, "AMD EPYC 77B13") is None
    assert Price("a.b[1]", 1.0).fits("A.B[1]")
    assert not Price("a.b", 1.0).fits("axb")


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "names no currency"),
        ("currency = 5", "names no currency"),
        ('currency = "USD"', "has no price"),
        ('currency = "USD"\nprice = 2', "unknown key 'price'"),
        ('currency = "USD"\ndevice = 2', r"must be written as \[\[device\]\]"),
        ('currency = "USD"\n[[device]]\nname = "a"', "must have name and per_hour"),
        ('currency = "USD"\n[[device]]\nname = "a"\nper_hour = "2"', "must be a number"),
        ('currency = "USD"\n[[device]]\nname = "a"\nper_hour = true', "must be a number"),
        ('currency = "USD"\n[[device]]\nname = "a"\nper_hour = -2', "must be 0 or more"),
        ('currency = "USD"\n[[device]]\nname = "a"\nper_hour = nan', "must be 0 or more"),
        ('currency = "USD"\n[[machine]]\ncpu = "a"\nper_hour = 1\nx = 1', "and nothing else"),
    ],
)
def test_tables_that_are_none(text: str, says: str) -> None:
    """One sentence says what is wrong and what to write."""
    with pytest.raises(UsageError, match=says):
        table(text)


def test_the_file(tmp_path: Path) -> None:
    """A table is read with its name and digest; what is no table is refused."""
    path = tmp_path / "prices.toml"
    path.write_text(TABLE)
    found = read_prices(str(path))
    assert found.name == "prices.toml"
    assert found.sha256 == hashlib.sha256(TABLE.encode()).hexdigest()
    with pytest.raises(UsageError, match="cannot be read: No such file"):
        read_prices(str(tmp_path / "nowhere.toml"))
    for content in (b"[[", b"\xff\xfe", b" " * ((1 << 20) + 1)):
        path.write_bytes(content)
        with pytest.raises(UsageError, match=r"is not TOML|this is not a price table"):
            read_prices(str(path))


@pytest.mark.parametrize(
    ("facts", "says"),
    [
        ({"gpus": [H100, H100]}, "cost: 2.00 USD (2 × NVIDIA H100 80GB HBM3 at 2 an hour, "),
        (CPU, "cost: 0.25 USD (AMD EPYC 7B13 64-Core at 0.5 an hour, prices.toml of 2026-11-01)"),
        ({}, "cost: not known: the devices of the run were not seen"),
    ],
)
def test_the_screen(facts: dict[str, Any], says: str) -> None:
    """The amount with what it is made of, or why there is none."""
    assert says in render(receipt_of(facts, prices=table()), RenderOptions(width=200))
