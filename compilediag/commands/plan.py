"""`compilediag plan`: the sizes to compile for, from the sizes that a run really used."""

from __future__ import annotations

import click

from compilediag.commands.help import Command
from compilediag.commands.terminal import look, write
from compilediag.errors import UsageError


@click.command(
    name="plan",
    cls=Command,
    epilog="""\b
Examples:
  compilediag plan                                  at most 8 buckets for the latest run
  compilediag plan run.json -k 4 --multiple 8       4 buckets, all of them multiples of 8
  compilediag plan --cap 512                        nothing larger than 512: larger ones are split
""",
)
@click.argument("receipt", required=False, type=click.Path())
@click.option(
    "-k", "--graphs", type=click.IntRange(1, 256), default=8, help="Most buckets (default 8)."
)
@click.option("--multiple", type=click.IntRange(1), default=1, help="Every bucket is one of these.")
@click.option(
    "--cap", type=click.IntRange(2), help="No bucket is larger; larger batches are split."
)
@click.option(
    "--per-graph",
    type=click.FloatRange(0),
    default=0.0,
    metavar="ROWS",
    help="Padded rows that one more bucket must save.",
)
@click.option("--json", "as_json", is_flag=True, help="The plans as JSON.")
def command(
    receipt: str | None,
    *,
    graphs: int,
    multiple: int,
    cap: int | None,
    per_graph: float,
    as_json: bool,
) -> None:
    """Choose the sizes to compile for from the sizes a run used.

    RECEIPT is a receipt file or the folder of a run; the default is the latest run. The buckets pad
    as few rows as any choice of so many does.
    """
    from compilediag.commands.receipts import load, suffix_for
    from compilediag.receipt.bucket_plan import PlanLimits, bucket_plans
    from compilediag_harness.shapes.buckets import BucketsImpossible

    try:
        found = bucket_plans(load(receipt)[1], PlanLimits(graphs, multiple, cap, per_graph))
    except BucketsImpossible as error:
        raise UsageError(f"no plan: {error}") from error
    if as_json:
        import json

        from compilediag.receipt.bucket_plan import plan_json

        write(json.dumps([plan_json(item) for item in found], indent=1) + "\n")
        return
    from compilediag.views.plan import render_plan

    following = f"show{suffix_for(receipt)}" if found else "run"
    write(render_plan(found, look()) + f"\n  next: compilediag {following}\n")
