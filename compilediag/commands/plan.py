"""`compilediag plan`: the sizes to compile for, from the sizes that a run really used."""

from __future__ import annotations

from dataclasses import dataclass

import click

from compilediag.commands.receipts import format_suffix, load_receipt
from compilediag.commands.subcommand import subcommand
from compilediag.commands.terminal import get_render_options, write, write_document
from compilediag.errors import UsageError
from compilediag.option_fields import flag, option, receipt_argument
from compilediag.rules.bucket_plan import PlanDocument, PlanLimits, make_bucket_plans
from compilediag.views.plan import render_plan
from compilediag_harness.shapes.buckets import BucketsImpossible


@dataclass(frozen=True, slots=True)
class PlanOptions:
    """Limits of the plans."""

    receipt: str | None = receipt_argument()
    graphs: int = option(
        "-k --graphs",
        "At most so many buckets (default 8).",
        default=8,
        type=click.IntRange(1, 256),
    )
    multiple: int = option(
        "--multiple", "Every bucket is a multiple of this.", default=1, type=click.IntRange(1)
    )
    cap: int | None = option(
        "--cap", "No bucket is larger than this; larger batches are split.", type=click.IntRange(2)
    )
    per_graph: float = option(
        "--per-graph ROWS",
        "Padded rows that another bucket must save.",
        default=0.0,
        type=click.FloatRange(0),
    )
    as_json: bool = flag("--json", "Print the plans as JSON.")


@subcommand(
    "plan",
    PlanOptions,
    examples="""\
  compilediag plan                                  at most 8 buckets for the latest run
  compilediag plan run.json -k 4 --multiple 8       4 buckets, all of them multiples of 8
  compilediag plan --cap 512                        no bucket above 512: larger batches are split
""",
)
def command(options: PlanOptions) -> None:
    """Choose the sizes to compile for from the sizes a run used.

    RECEIPT is a receipt file or the folder of a run; the default is the latest run. No other choice
    of as many buckets pads fewer rows.
    """
    limits = PlanLimits(options.graphs, options.multiple, options.cap, options.per_graph)
    try:
        plans = make_bucket_plans(load_receipt(options.receipt)[1], limits)
    except BucketsImpossible as error:
        raise UsageError(f"no plan: {error}") from error
    if options.as_json:
        write_document(PlanDocument(schema="compilediag.plan", plans=plans))
        return
    following = f"show{format_suffix(options.receipt)}" if plans else "run"
    write(render_plan(plans, get_render_options()) + f"\n  next: compilediag {following}\n")
