"""The receipt of the program as it is, with what the pairs of runs show in it."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from msgspec.structs import replace

from compilediag.compare.against_eager.conclude import verdict_of
from compilediag.diagnosis.findings import Finding
from compilediag.receipt.assemble import amended
from compilediag.receipt.schema.comparisons import (
    AgainstEagerSection,
    ArmRecord,
    CallableAgainstEager,
)
from compilediag.receipt.schema.receipt import Receipt
from compilediag.rules.make_finding import make_finding, plural
from compilediag.timeline.timeline import Timeline
from compilediag_harness.wire import Location

MIN_SHARE = 0.05
"""Of a usual compiled step: a callable that loses less is not worth a line."""

_ATTEMPT = re.compile(r"_\d+$")
"""Of a compile id: which attempt reported the break."""

BRIEF_S = 0.0005
"""A compiled call as brief as this is mostly what torch.compile does around its graph: guards,
wrapper and launch take tens of microseconds."""


def with_payoff(
    receipt: Receipt,
    timeline: Timeline,
    payoff: AgainstEagerSection,
    runs: Sequence[ArmRecord],
    *,
    fresh_caches: bool,
    secret_values: Sequence[str] = (),
) -> Receipt:
    """The receipt of the first compiled run with its section `against_eager`, and the findings of
    CD631 after its own; both redacted and bounded like the rest.

    Args:
        receipt: of the first compiled run.
        timeline: what it was made from.
        payoff: what the pairs show.
        runs: all that were made.
        fresh_caches: each run had empty caches of its own.
        secret_values: what must not stand in a receipt.
    """
    caches = "fresh" if fresh_caches else "kept"
    section = replace(payoff, caches=caches, runs=tuple(runs))
    slower = slower_than_eager(timeline, payoff)
    return amended(receipt, timeline, slower, secret_values, against_eager=section)


def slower_than_eager(timeline: Timeline, payoff: AgainstEagerSection) -> Iterable[Finding]:
    """One for each callable that is slower compiled; one for the steps where they are and no
    callable is seen to be why. None where the outputs differ: that is then what to mend."""
    if payoff.verdict in ("outputs_differ", "not_concluded") or payoff.compiled_step_s is None:
        return
    least_s = MIN_SHARE * payoff.compiled_step_s
    slower = [
        each
        for each in payoff.callables
        if verdict_of(each.ratio) == "does_not_pay"
        and each.calls * (each.compiled_s - each.eager_s) >= least_s
    ]
    for each in slower:
        yield _of_callable(timeline, each)
    if not slower and payoff.verdict == "does_not_pay" and payoff.ratio is not None:
        yield make_finding(
            timeline,
            "CD631",
            f"steps are slower compiled than eager: {payoff.ratio.middle:.2g}x",
            "leave out torch.compile, or compile what the steps spend their time in",
            evidence={
                "ratio": payoff.ratio.middle,
                "compiled_step_s": payoff.compiled_step_s,
                "eager_step_s": payoff.eager_step_s,
            },
        )


def _of_callable(timeline: Timeline, each: CallableAgainstEager) -> Finding:
    # Graph breaks met in compiling the function, or what is left of it after one.
    name = each.function.function
    own, rest = name.rpartition(".")[2], f"torch_dynamo_resume_in_{name.rpartition('.')[2]}_at_"
    ids = {
        item.compile_id
        for item in timeline.compiles
        if item.frame.file == each.function.file
        and (item.frame.function == own or item.frame.function.startswith(rest))
    }
    met = ({_ATTEMPT.sub("", compiled) for compiled in s.compile_ids} for s in timeline.breaks)
    breaks = sum(not ids.isdisjoint(compiled) for compiled in met)
    if breaks:
        fix = (
            f"remove its {plural(breaks, 'graph break')} first: at each one the call goes back to "
            "Python, checks guards and starts another graph"
        )
    elif each.compiled_s < BRIEF_S:
        fix = (
            "compile the function that calls it, so that it becomes part of a larger graph; or do "
            "not compile it"
        )
    else:
        fix = "do not compile it: put torch.compiler.disable on it, or leave out torch.compile"
    return make_finding(
        timeline,
        "CD631",
        f"{name} is slower compiled than eager: {each.ratio.middle:.2g}x",
        fix,
        location=Location(each.function.file, each.function.line, name),
        evidence={
            "ratio": each.ratio.middle,
            "ratio_low": each.ratio.low,
            "ratio_high": each.ratio.high,
            "compiled_call_s": each.compiled_s,
            "eager_call_s": each.eager_s,
            "calls_per_step": each.calls,
            "graph_breaks": breaks,
        },
    )
