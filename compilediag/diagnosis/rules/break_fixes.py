"""What to change for each category of graph break, as measured in docs/rules/CD2xx.md."""

from __future__ import annotations

from typing import NamedTuple

from compilediag.diagnosis.rules.break_text import BreakReport


class BreakFix(NamedTuple):
    """What to change, and what that costs."""

    fix: str
    caveat: str | None = None


FIXES = {
    "CD201": BreakFix(
        "compute both sides and choose with torch.where; or branch with torch.cond",
        "torch.where computes both sides; torch.cond needs functions without side effects",
    ),
    "CD202": BreakFix(
        "keep the value a tensor; or read it after the compiled function",
        "torch._dynamo.config.capture_scalar_outputs = True (for sizes: "
        "capture_dynamic_output_shape_ops) keeps one graph with an unknown value",
    ),
    "CD203": BreakFix("call {it} outside of the compiled function"),
    "CD204": BreakFix(
        "call {it} outside of the compiled function: Dynamo skips that function on purpose",
    ),
    "CD205": BreakFix(
        "pass a list instead of a generator, and compile what consumes it",
        "a list holds all items at once",
    ),
    "CD206": BreakFix("open the context around the call of the compiled function"),
    "CD207": BreakFix(
        "use plain attributes, build objects outside and return values instead of mutating",
    ),
    "CD208": BreakFix("convert to a dense tensor (or jagged layout) before the compiled function"),
    "CD209": BreakFix(
        "call backward and autograd.grad, and register hooks, outside of the compiled function",
        "backward hooks of modules need compiled autograd to stay in the graph",
    ),
    "CD210": BreakFix(
        "use a functional form of the operator; or register a fake implementation for it",
    ),
    "CD211": BreakFix(
        "move {it} out of the compiled function; or put it under "
        "`if not torch.compiler.is_compiling()`",
        "under is_compiling() it runs no more once compiled",
    ),
    "CD212": BreakFix(
        "draw with torch's generators instead of Python's or numpy's, and compute with tensors",
        "other random numbers for the same seed",
    ),
    "CD213": BreakFix("check before the compiled function, and raise there"),
    "CD214": BreakFix("keep the operator's contract: pure functions, the same output structure"),
    "CD290": BreakFix("read torch's report in the evidence: it fits no category"),
}
EXPLICIT = BreakFix(
    "accept it; or remove the call; or move it to the edge of the compiled function",
    "without torch.compiler.disable the function is traced and guarded",
)


EXPLICIT_OF_OTHERS = BreakFix("accept it: the code that asks for it is not the program's")


def break_fix(code: str, report: BreakReport, *, own: bool = True) -> BreakFix:
    """What to change for a break of category `code`, in a line of the program's own or not."""
    if report.explicit:
        return EXPLICIT if own else EXPLICIT_OF_OTHERS
    if report.c_extension is not None:
        return BreakFix(
            f"wrap the call into {report.c_extension} in torch.library.custom_op with a fake "
            "implementation; or call it outside of the compiled function",
            "the operator is opaque: nothing is fused into it",
        )
    fix = FIXES[code]
    callee = report.callee
    return fix._replace(fix=fix.fix.format(it=f"`{callee.name}`" if callee is not None else "it"))
