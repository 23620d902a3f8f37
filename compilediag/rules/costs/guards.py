"""CD621: evaluating the guards of compiled frames takes a good part of each step."""

from __future__ import annotations

from collections.abc import Iterable

from compilediag.diagnosis.figures.compile_costs import guard_cost
from compilediag.diagnosis.findings import Finding, Rule
from compilediag.rules.make_finding import make_finding, pick
from compilediag.timeline.timeline import Timeline
from compilediag_harness.wire import GuardsEvaluated, Location

SHARE = 0.05
"""Of a step, from which on guards are worth a reader's time."""

MIN_GUARDS = 500
"""Guards evaluated in a step below which nothing is said: some ten microseconds, which are a share
of a step only where the step itself does next to nothing."""

MIN_STEPS = 3
"""Steps without a compile, of whose times the median is one."""

MOST = 0.5
"""Share of a frame's guards from which on what they are about, or their line, is what to change."""

CONSTANTS = frozenset({"EQUALS_MATCH", "ID_MATCH", "TRUE_MATCH", "FALSE_MATCH", "NONE_MATCH"})
"""Guards on Python values that became constants of the graph."""


_COMPUTE_ONCE = (
    "compute what this line reads from many Python values once, outside the compiled code, and "
    "read the result"
)
_DICT_TAGS = (
    "set torch._dynamo.config.use_recursive_dict_tags_for_guards = True before compiling, where "
    "this torch has it: modules that did not change are skipped"
)
_UNSAFE = (
    "; or call torch.compiler.set_stance(skip_guard_eval_unsafe=True) after warm-up, if nothing "
    'will compile again; or pass torch.compile(options={"guard_filter_fn": '
    "torch.compiler.skip_guard_on_all_nn_modules_unsafe}), if no module changes after that"
)


def find_expensive_guards(timeline: Timeline) -> Iterable[Finding]:
    """CD621, once a run, at the frame whose guards cost most."""
    found = guard_cost(timeline)
    if found is None:
        return
    cost, dearest = found
    if cost.share is None or cost.share < SHARE or cost.step_s is None:
        return
    steps = [s.number for s in timeline.steps if s.process == timeline.lead and not s.compile_s]
    known = [item for item in cost.frames if item.us_per_step is not None]
    evaluated = sum((item.evaluated or 0) * (item.runs_per_step or 0.0) for item in known)
    if evaluated < MIN_GUARDS or len(steps) < MIN_STEPS:
        return
    first = known[0]
    line = _line(dearest)
    yield make_finding(
        timeline,
        "CD621",
        f"guards take {_us(cost.us_per_step or 0.0)} of each {_us(cost.step_s * 1e6)} step "
        f"({cost.share:.0%}): {first.evaluated:,} of {first.frame.function}",
        _advice(line),
        caveat="what torch calls unsafe computes with stale values, in silence, where something "
        "that is no longer checked changes after all",
        location=line or Location(first.frame.file, first.frame.line, first.frame.function),
        count=len(steps),
        steps=steps,
        cost_s=(cost.us_per_step or 0.0) / 1e6 * len(steps),
        evidence={
            **pick(cost, "us_per_step", "step_s", "share"),
            "guards_per_step": evaluated,
            "frames": [
                {
                    **pick(item.frame, "file", "line", "function"),
                    **pick(item, "eval_us", "evaluated", "runs_per_step"),
                }
                for item in known[:5]
            ],
            "kinds": dict(zip(dearest.kinds, dearest.counts, strict=False)),
            "lines": [
                {**pick(at, "file", "line"), "guards": count}
                for at, count in zip(dearest.lines, dearest.line_counts, strict=False)
            ],
            "in_python": dearest.in_python,
            "python_guards": list(dearest.python_texts),
            "before_graph_us": {
                item.function.function: item.before_graph_us
                for item in timeline.warm_calls
                if item.process == timeline.lead and item.before_graph_us is not None
            },
        },
    )


def _line(guards: GuardsEvaluated) -> Location | None:
    """The line that reads the Python values that most of a frame's guards are about."""
    kinds = zip(guards.kinds, guards.counts, strict=False)
    constants = sum(count for kind, count in kinds if kind in CONSTANTS)
    first = next(zip(guards.lines, guards.line_counts, strict=False), None)
    if first is None or not guards.evaluated or constants < MOST * guards.evaluated:
        return None
    line, count = first
    return line if count >= MOST * guards.evaluated else None


def _advice(line: Location | None) -> str:
    """What keeps every check first, then what drops some."""
    return (_COMPUTE_ONCE if line is not None else _DICT_TAGS) + _UNSAFE


def _us(value: float) -> str:
    return f"{value / 1000:.1f} ms" if value >= 1000 else f"{value:.0f} us"


RULES: tuple[Rule, ...] = (find_expensive_guards,)
