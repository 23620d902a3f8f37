"""The price table that a user gives, and the cost of a run by it. Nothing is guessed."""

from __future__ import annotations

import hashlib
import math
import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast

import msgspec

from compilediag.errors import UsageError
from compilediag.receipt.schema.record import make_record
from compilediag.receipt.schema.running import GoodputSection
from compilediag.receipt.schema.tracked import CostSection
from compilediag.timeline.timeline import Timeline, find_lead_process, find_world_size

MAX_PRICES_BYTES = 1 << 20

KEYS = frozenset({"currency", "source", "as_of", "device", "machine"})

DEVICE, MACHINE = "device", "machine"


@dataclass(frozen=True, slots=True)
class Price:
    """One line of a table."""

    pattern: str
    """Name of what it is for; `*` stands for any text, `?` for any character."""
    per_hour: float

    def fits(self, name: str) -> bool:
        """True if it is for a thing of this name; capitals do not matter."""
        parts = (".*" if c == "*" else "." if c == "?" else re.escape(c) for c in self.pattern)
        return re.fullmatch("".join(parts), name, re.IGNORECASE | re.DOTALL) is not None


@dataclass(frozen=True, slots=True)
class PriceTable:
    """Prices of one currency, with where they come from."""

    currency: str
    devices: tuple[Price, ...]
    """By name of the GPU, one of them for an hour."""
    machines: tuple[Price, ...]
    """By name of the CPU, one machine for an hour, for runs without a GPU."""
    name: str
    """Of the file."""
    sha256: str
    source: str | None = None
    as_of: str | None = None

    def find_price(self, unit: str, name: str) -> Price | None:
        """Find the first line that fits; None where none does."""
        table = self.devices if unit == DEVICE else self.machines
        return next((price for price in table if price.fits(name)), None)

    def compute_cost(
        self, timeline: Timeline, wall_s: float | None, time: GoodputSection | None
    ) -> CostSection:
        """Compute the cost; an amount only where hardware, wall time and price are known."""
        hired, note = _find_hired(timeline)
        price = None if hired is None else self.find_price(hired.unit, hired.name)
        if hired is not None and price is None:
            note = f"the table has no price of a {hired.unit} {hired.name!r}"
        if wall_s is None and note is None:
            note = "the wall time was not measured"
        per_hour = price.per_hour if price is not None else None
        count = hired.count if hired is not None else None
        recompile_s = time.badput_s.get("recompile") if time is not None else None
        return make_record(
            CostSection,
            hired,
            amount=_charge(wall_s, per_hour, count),
            recompile_amount=_charge(recompile_s, per_hour, count),
            currency=self.currency,
            per_hour=per_hour,
            count=count,
            table=self.name,
            table_as_of=self.as_of,
            table_source=self.source,
            table_sha256=self.sha256,
            note=note,
        )


def read_prices(path: str) -> PriceTable:
    """Read the table in a TOML file.

    Raises:
        UsageError: it cannot be read, or is no price table.
    """
    try:
        with open(path, "rb") as stream:
            content = stream.read(MAX_PRICES_BYTES + 1)
        if len(content) > MAX_PRICES_BYTES:
            raise UsageError(f"{path} is larger than 1 MiB: this is not a price table")
        raw = msgspec.toml.decode(content.decode("utf-8-sig"))
    except OSError as error:
        reason = error.strerror or error
        raise UsageError(f"the price table {path} cannot be read: {reason}") from error
    except ValueError as error:
        raise UsageError(f"the price table {path} is not TOML: {error}") from error
    return parse_table(raw, os.path.basename(path), hashlib.sha256(content).hexdigest())


def parse_table(raw: Mapping[str, Any], name: str, sha256: str) -> PriceTable:
    """Parse the table of a decoded TOML file.

    Raises:
        UsageError: something in it is missing, unknown, or no price.
    """
    if unknown := sorted(set(raw) - KEYS):
        known = ", ".join(sorted(KEYS))
        raise UsageError(f"unknown key {unknown[0]!r} in {name}: the keys are {known}")
    currency = raw.get("currency")
    if not isinstance(currency, str) or not 0 < len(currency) <= 16:
        raise UsageError(f'{name} names no currency: begin it with currency = "USD"')
    devices = _parse_prices(raw.get("device"), "device", "name", name)
    machines = _parse_prices(raw.get("machine"), "machine", "cpu", name)
    if not devices and not machines:
        raise UsageError(f"{name} has no price: add a [[device]] or a [[machine]]")
    source, as_of = raw.get("source"), raw.get("as_of")
    return PriceTable(
        currency=currency,
        devices=devices,
        machines=machines,
        name=name,
        sha256=sha256,
        source=None if source is None else str(source)[:500],
        as_of=None if as_of is None else str(as_of)[:100],
    )


def _parse_prices(raw: Any, kind: str, key: str, name: str) -> tuple[Price, ...]:
    if raw is None:
        return ()
    if not isinstance(raw, list):
        raise UsageError(f"{kind} in {name} must be written as [[{kind}]]")
    prices: list[Price] = []
    for entry in cast("Sequence[Any]", raw):
        row: Mapping[str, Any] = cast("Mapping[str, Any]", entry) if isinstance(entry, dict) else {}
        pattern, per_hour = row.get(key), row.get("per_hour")
        if set(row) != {key, "per_hour"} or not isinstance(pattern, str) or not pattern:
            only = f"{key} and per_hour, and nothing else"
            raise UsageError(f"a [[{kind}]] of {name} must have {only}")
        if isinstance(per_hour, bool) or not isinstance(per_hour, (int, float)):
            raise UsageError(f"per_hour of {pattern!r} in {name} must be a number")
        if not 0 <= per_hour < math.inf:
            raise UsageError(f"per_hour of {pattern!r} in {name} must be 0 or more, not {per_hour}")
        prices.append(Price(pattern, float(per_hour)))
    return tuple(prices)


_HOUR_S = 3600.0


@dataclass(frozen=True, slots=True)
class _Hired:
    """The hardware of a run: `count` devices, or machines, of one name."""

    unit: str
    name: str
    count: int


def _charge(seconds: float | None, per_hour: float | None, count: int | None) -> float | None:
    if seconds is None or per_hour is None or count is None:
        return None
    return seconds / _HOUR_S * per_hour * count


def _find_hired(timeline: Timeline) -> tuple[_Hired | None, str | None]:
    """Find the hardware that the run used, or why that cannot be determined."""
    lead = find_lead_process(timeline)
    facts = lead.facts if lead is not None else {}
    gpus = facts.get("gpus")
    ranks = find_world_size(timeline) or 1
    if gpus is None:
        return None, "the devices of the run were not seen"
    if gpus:
        # One device a rank; one rank has all that it sees.
        gpus = cast("Sequence[Mapping[str, Any]]", gpus)
        names = sorted({str(gpu.get("name")) for gpu in gpus})
        if any(gpu.get("index") is None for gpu in gpus):
            return None, f"the program used none of the {len(gpus)} GPUs that the driver lists"
        if len(names) > 1:
            return None, f"several kinds of devices: {', '.join(names[:4])}"
        return _Hired(DEVICE, names[0], ranks if ranks > 1 else len(gpus)), None
    cpu = facts.get("cpu_model")
    if not isinstance(cpu, str):
        return None, "the name of the CPU is not known"
    if ranks > 1:
        return None, f"{ranks} ranks without a GPU: on how many machines is not known"
    return _Hired(MACHINE, cpu, 1), None
