"""The cost section of a receipt: by the price table of the user, or not at all."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast

from compilediag.receipt.prices import DEVICE, MACHINE, PriceTable
from compilediag.receipt.schema.record import record_from
from compilediag.receipt.schema.running import GoodputSection
from compilediag.receipt.schema.tracked import CostSection
from compilediag.timeline.timeline import Timeline, lead_process, world_size

_HOUR_S = 3600.0


@dataclass(frozen=True, slots=True)
class _Hired:
    """What the run used: `count` devices, or machines, of one name."""

    unit: str
    name: str
    count: int


def cost_section(
    timeline: Timeline, table: PriceTable | None, wall_s: float | None, time: GoodputSection | None
) -> CostSection | None:
    """None without a table; an amount only where hardware, wall time and price are known."""
    if table is None:
        return None
    hired, note = _hired(timeline)
    price = None if hired is None else table.price(hired.unit, hired.name)
    if hired is not None and price is None:
        note = f"the table has no price of a {hired.unit} {hired.name!r}"
    if wall_s is None and note is None:
        note = "the wall time was not measured"
    per_hour = price.per_hour if price is not None else None
    count = hired.count if hired is not None else None
    recompile_s = time.badput_s.get("recompile") if time is not None else None
    return record_from(
        CostSection,
        hired,
        amount=_amount(wall_s, per_hour, count),
        recompile_amount=_amount(recompile_s, per_hour, count),
        currency=table.currency,
        per_hour=per_hour,
        count=count,
        table=table.name,
        table_as_of=table.as_of,
        table_source=table.source,
        table_sha256=table.sha256,
        note=note,
    )


def _amount(seconds: float | None, per_hour: float | None, count: int | None) -> float | None:
    if seconds is None or per_hour is None or count is None:
        return None
    return seconds / _HOUR_S * per_hour * count


def _hired(timeline: Timeline) -> tuple[_Hired | None, str | None]:
    """What the run used, or why that cannot be determined."""
    lead = lead_process(timeline)
    facts = lead.facts if lead is not None else {}
    gpus = facts.get("gpus")
    ranks = world_size(timeline) or 1
    if gpus is None:
        return None, "the devices of the run were not seen"
    if gpus:
        return _devices(cast("Sequence[Mapping[str, Any]]", gpus), ranks)
    cpu = facts.get("cpu_model")
    if not isinstance(cpu, str):
        return None, "the name of the CPU is not known"
    if ranks > 1:
        return None, f"{ranks} ranks without a GPU: on how many machines is not known"
    return _Hired(MACHINE, cpu, 1), None


def _devices(gpus: Sequence[Mapping[str, Any]], ranks: int) -> tuple[_Hired | None, str | None]:
    """One device a rank; one rank has all that it sees."""
    names = sorted({str(item.get("name")) for item in gpus})
    if any(item.get("index") is None for item in gpus):
        return None, f"the program used none of the {len(gpus)} GPUs that the driver lists"
    if len(names) > 1:
        return None, f"several kinds of devices: {', '.join(names[:4])}"
    return _Hired(DEVICE, names[0], ranks if ranks > 1 else len(gpus)), None
