"""What to change for each category of graph break, as measured in docs/rules/CD2xx.md."""

from __future__ import annotations

from typing import NamedTuple

from compilediag.rules.breaks.text import BreakReport
from compilediag.rules.make_finding import Advice

FIXES = {
    "CD201": Advice(
        "compute both sides and choose with torch.where; or branch with torch.cond",
        "torch.where computes both sides; torch.cond needs functions without side effects",
    ),
    "CD202": Advice(
        "keep the value a tensor; or read it after the compiled function",
        "torch._dynamo.config.capture_scalar_outputs = True (for sizes: "
        "capture_dynamic_output_shape_ops) keeps one graph with an unknown value",
    ),
    "CD203": Advice("call {it} outside the compiled function"),
    "CD204": Advice(
        "call {it} outside the compiled function: Dynamo skips that function on purpose",
    ),
    "CD205": Advice(
        "pass a list instead of a generator, and compile what consumes it",
        "a list holds all items at once",
    ),
    "CD206": Advice("open the context around the call of the compiled function"),
    "CD207": Advice(
        "use plain attributes, build objects outside and return values instead of mutating",
    ),
    "CD208": Advice("convert to a dense tensor (or jagged layout) before the compiled function"),
    "CD209": Advice(
        "call backward and autograd.grad, and register hooks, outside the compiled function",
        "backward hooks of modules need compiled autograd to stay in the graph",
    ),
    "CD210": Advice(
        "use a functional form of the operator; or register a fake implementation for it",
    ),
    "CD211": Advice(
        "move {it} out of the compiled function; or put it under "
        "`if not torch.compiler.is_compiling()`",
        "under is_compiling() it no longer runs once compiled",
    ),
    "CD212": Advice(
        "draw before the compiled function, and pass what was drawn as a tensor",
    ),
    "CD213": Advice("check before the compiled function, and raise there"),
    "CD214": Advice("keep the operator's contract: pure functions, the same output structure"),
    "CD290": Advice("read torch's report in the evidence: this break fits no known category"),
}
_BY_THE_CALLER = frozenset(("CD205", "CD208", "CD209", "CD290"))
"""Codes of what the caller passes or sets up: the advice holds whoever has the line."""

EXPLICIT = Advice(
    "accept it; or remove the call; or move it to the edge of the compiled function",
    "without torch.compiler.disable the function is traced and guarded",
)


OF_PACKAGE = Advice(
    "make the call of the package, `{call}` ({place}), outside the compiled function",
)
"""Where the program's own compiled code calls a package in whose code the break is."""

WITHIN_PACKAGE = Advice("accept it: the line is a package's, and so is what calls it")
EXPLICIT_OF_OTHERS = Advice("accept it: the code that requests it is not part of the program")


class OwnCall(NamedTuple):
    """A call in the program's own compiled code, below which a break is in another's."""

    text: str
    place: str


def break_fix(
    code: str,
    report: BreakReport,
    *,
    own: bool = True,
    in_package: bool = False,
    call: OwnCall | None = None,
) -> Advice:
    """What to change for a break of category `code`.

    Args:
        code: the category.
        report: torch's report.
        own: whether torch names a line of the program's own.
        in_package: whether the line to change is a package's.
        call: of a package's line, the call of it in what the program compiles; None where the
            program calls something compiled of which all code is a package's.
    """
    if report.explicit:
        return EXPLICIT if own else EXPLICIT_OF_OTHERS
    fix = FIXES[code]
    if in_package and code not in _BY_THE_CALLER:
        caveat = fix.caveat if code == "CD202" else None  # a setting: whoever has the line
        if call is None:
            return WITHIN_PACKAGE._replace(caveat=caveat)
        return OF_PACKAGE.filled(call=call.text, place=call.place)._replace(caveat=caveat)
    callee = report.callee
    return fix.filled(it=f"`{callee.name}`" if callee is not None else "it")
