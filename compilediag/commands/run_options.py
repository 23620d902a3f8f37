"""The options that `run` and `probe` share, and how TARGET is told from them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import click

from compilediag.commands.help import Command
from compilediag.runs.supervised.options import GRACE_S

PROBE_FLAG = "--cadence-probe"
"""The one option of ours that is also accepted after TARGET."""

TELEMETRY = (
    *("otlp", "prometheus_textfile", "pushgateway", "prometheus_listen", "telemetry_every"),
    "experiments",
)
"""Settings of `_TELEMETRY`, by the names that they have in pyproject.toml."""

TARGET_IS_MARKED = "compilediag.target_is_marked"
"""Key in `click.Context.meta`: `--` stands before TARGET, all that follows is the target's."""

Decorated = TypeVar("Decorated", bound=Callable[..., Any])
Decorator = Callable[[Any], Any]


class TargetCommand(Command):
    """A command whose last argument is TARGET with its own arguments."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        given = list(args)  # click empties `args`
        rest = super().parse_args(ctx, args)
        target: Sequence[str] = ctx.params.get("target") or ()
        before = given[: len(given) - len(target)]
        ctx.meta[TARGET_IS_MARKED] = before[-1:] == ["--"] or list(target[:1]) == ["--"]
        return rest


def with_run_options(function: Decorated) -> Decorated:
    """The options of every run."""
    return _with(_RUN, function)


def with_telemetry_options(function: Decorated) -> Decorated:
    """The options of a run that is told of while it goes on."""
    return _with(_TELEMETRY, function)


def with_probe_options(function: Decorated) -> Decorated:
    """The options of a cadence probe alone."""
    return _with(_PROBE, function)


def _with(options: Sequence[Decorator], function: Decorated) -> Decorated:
    decorated: Any = function
    for option in reversed(options):
        decorated = option(decorated)
    return decorated


_RUN: tuple[Decorator, ...] = (
    click.option("-o", "--output", metavar="DIR", help="Directory for this run; new or empty."),
    click.option("--name", metavar="NAME", help="Name of the lane; default: of the script."),
    click.option("--steps", type=click.IntRange(min=1), help="Stop cleanly after this many steps."),
    click.option("--warmup", metavar="N|auto", help="Steps that count as warm-up; default: auto."),
    click.option("--timeout", metavar="S", type=float, help="End the target after S seconds."),
    click.option(
        "--grace",
        metavar="S",
        type=float,
        help=f"Seconds from Ctrl-C to the end by force; default: {GRACE_S:g}.",
    ),
    click.option(
        "--fail-on", metavar="EXPR", help="Exit with 3 where 'recompiles>0,graph_breaks>2' holds."
    ),
    click.option("--trace", is_flag=True, default=None, help="Keep torch's trace (TORCH_TRACE)."),
    click.option(
        "--tlparse", is_flag=True, default=None, help="Link tlparse's report of torch's trace."
    ),
    click.option(
        "--depyf", is_flag=True, default=None, help="Run it a second time, to decompile its frames."
    ),
    click.option(
        "--profile-on-signal",
        is_flag=True,
        default=None,
        help="SIGUSR1 to the target begins a torch.profiler window, SIGUSR2 ends it.",
    ),
    click.option(
        "--prices", metavar="FILE", help="Price table (TOML), for an estimate of what it cost."
    ),
    click.option("--quiet", is_flag=True, default=None, help="Print no verdict."),
    click.option(
        "--json", "as_json", is_flag=True, default=None, help="Print the receipt instead."
    ),
    click.option(
        "--live/--no-live",
        default=None,
        help="Progress in the title of the terminal while it runs.",
    ),
    click.option(
        "--live-lines", is_flag=True, default=None, help="Progress as lines of text instead."
    ),
)

_TELEMETRY: tuple[Decorator, ...] = (
    click.option(
        "--otlp",
        metavar="URL|env",
        help="Tell an OpenTelemetry collector; env: as its own variables say.",
    ),
    click.option(
        "--prometheus-textfile", metavar="FILE", help="Tell Prometheus by a file, X.prom."
    ),
    click.option("--pushgateway", metavar="URL", help="Tell Prometheus by its push gateway."),
    click.option(
        "--prometheus-listen", metavar="[HOST:]PORT", help="Serve a page for Prometheus to scrape."
    ),
    click.option(
        "--telemetry-every",
        metavar="S",
        type=float,
        help="Seconds between pushes; default and least: 15.",
    ),
    click.option(
        "--experiments",
        is_flag=True,
        default=None,
        help="Tell the W&B, MLflow or TensorBoard run that the target has open.",
    ),
)

_PROBE: tuple[Decorator, ...] = (
    click.option(
        "--group",
        metavar="NAME=TEMPLATE",
        multiple=True,
        help="Periodic work and how its period {n} is set; NAME alone: only this one of the code.",
    ),
    click.option(
        "--keep-caches",
        is_flag=True,
        default=None,
        help="Use the caches there are, not empty ones for each variant.",
    ),
)
