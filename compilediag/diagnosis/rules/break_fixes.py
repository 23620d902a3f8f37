"""What to change for each category of graph break, as measured in docs/rules/CD2xx.md."""

from __future__ import annotations

from compilediag.diagnosis.codes import info
from compilediag.diagnosis.findings import Fix
from compilediag.diagnosis.rules.break_text import BreakReport

_ADVICE: dict[str, tuple[str, str | None]] = {
    "CD201": (
        "compute both sides and choose with torch.where, or branch with torch.cond",
        "torch.where computes both sides; torch.cond needs functions without side effects",
    ),
    "CD202": (
        "keep the value a tensor, or read it after the compiled function",
        (
            "torch._dynamo.config.capture_scalar_outputs = True (for sizes: "
            "capture_dynamic_output_shape_ops) keeps one graph with an unknown value"
        ),
    ),
    "CD203": ("call it outside of the compiled function", None),
    "CD204": (
        "call it outside of the compiled function: Dynamo skips that function on purpose",
        None,
    ),
    "CD205": (
        "pass a list instead of a generator, and compile what consumes it",
        "a list holds all items at once",
    ),
    "CD206": ("open the context around the call of the compiled function", None),
    "CD207": (
        "use plain attributes, build objects outside and return values instead of mutating",
        None,
    ),
    "CD208": ("convert to a dense tensor (or jagged layout) before the compiled function", None),
    "CD209": (
        "call backward and autograd.grad, and register hooks, outside of the compiled function",
        "backward hooks of modules need compiled autograd to stay in the graph",
    ),
    "CD210": (
        "register a fake implementation for the operator, or use a functional form that has one",
        None,
    ),
    "CD211": (
        (
            "move it out of the compiled function, or put it under "
            "`if not torch.compiler.is_compiling()`"
        ),
        "under is_compiling() it runs no more once compiled",
    ),
    "CD212": (
        "draw with torch's generators and compute with tensors instead of numpy",
        "other random numbers for the same seed",
    ),
    "CD213": ("check before the compiled function, and raise there", None),
    "CD214": ("keep the operator's contract: pure functions, the same output structure", None),
    "CD290": ("read torch's report in the evidence: it fits no category", None),
}
_EXPLICIT = (
    "accept it, remove the call, or move it to the edge of the compiled function",
    "without torch.compiler.disable the function is traced and guarded",
)


def break_fix(code: str, report: BreakReport) -> Fix:
    """The fix for a break of category `code`, adapted to what was called."""
    summary, caveat = _ADVICE.get(code, _ADVICE["CD290"])
    if report.explicit:
        summary, caveat = _EXPLICIT
    elif report.c_extension is not None:
        summary = (
            f"wrap the call into {report.c_extension} in torch.library.custom_op "
            "with a fake implementation, or call it outside of the compiled function"
        )
        caveat = "the operator is opaque: nothing is fused into it"
    return Fix(summary=summary, how=info(code).how, caveat=caveat)
