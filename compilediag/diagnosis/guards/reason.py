"""Parses a printed recompile reason by torch's grammar into its parts.

    0/1: len(d) == 1      # return x * len(d)  # app/model.py:12 in forward (HINT: ...)
    User stack trace: ...

What a version of torch does not print is None; text that fits no grammar is an expression.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from compilediag_harness.wire import Location

_COMPILE_ID = re.compile(r"^(!?\d+(?:/\d+)+(?:_\d+)?):[ \t]?")
_STACK = re.compile(r"\n[ \t-]*User stack trace:")
_STACK_FRAME = re.compile(r"File \"(?P<file>[^\"\n]+)\", line (?P<line>\d+), in (?P<name>\S+)")
_HINT = re.compile(r"\s\(HINT: (?P<hint>.*)\)\s*$", re.DOTALL)
_STRING = re.compile(r"""'(?:\\.|[^'\\])*'|"(?:\\.|[^"\\])*\"""", re.DOTALL)
_QUOTE = re.compile(r"['\"]")
_COMMENT = re.compile(r"\s{2,}#(?=\s|$)")
_PART_END = re.compile(r"(?::\d+ in [^\s()]+(?: \([^()\n]*\))?\)?|use_duck_shape = False\))$")
_PLACE = re.compile(r"#\s\(?(?P<file>[^#\n]+?):(?P<line>\d+) in (?P<name>[^\s()]+)")


@dataclass(frozen=True, slots=True)
class PrintedReason:
    """A printed recompile reason, taken apart."""

    compile_id: str | None
    """Of the cache entry the reason is about, "0/0"."""
    expression: str
    """The guard that failed, "" when torch printed none."""
    user_line: str | None
    """The source line that made Dynamo install the guard."""
    location: Location | None
    hint: str | None
    comment: str | None = None
    """Everything torch printed behind the expression: explanations of shape guards."""


def parse_reason(text: str) -> PrintedReason:
    """Parse one reason; never raises."""
    head, stack = _split_stack(text)
    numbered = _COMPILE_ID.match(head)
    body = head[numbered.end() :] if numbered else head
    hinted = _HINT.search(body)
    if hinted:
        body = body[: hinted.start()]
    # Behind the expression are two or more blanks and `#`. A string constant may hold them itself;
    # unbalanced quotes in torch's own wording ("to be a tensor type, ' but found") make every mark
    # look quoted: then the first counts.
    marks = [mark.start() for mark in _COMMENT.finditer(body)]
    outside = (at for at in marks if not _QUOTE.search(_STRING.sub("", body[:at])))
    end = next(outside, (*marks, len(body))[0])
    comment = body[end:].strip()
    # A shape guard has two places when a branch narrowed it: the last one is the branch, the first
    # only where the value was first used.
    user_line, location = None, stack[-1] if stack else None
    for matched in (*_PLACE.finditer(comment),)[-1:]:
        line = comment[: matched.start()].strip().removeprefix("#").strip()
        user_line = line.rpartition(") and ")[2] or None
        file, number = matched["file"].strip(), int(matched["line"])
        # Comments shorten a file's name, the printed stack has it whole.
        whole = (s for s in reversed(stack) if s.line == number)
        fuller = (s for s in whole if s.file.endswith(file.lstrip("./")))
        location = next(fuller, Location(file, number, matched["name"]))
    return PrintedReason(
        compile_id=numbered.group(1) if numbered else None,
        expression=body[:end].strip(),
        user_line=user_line,
        location=location,
        hint=hinted.group("hint").strip() if hinted else None,
        comment=comment or None,
    )


def parse_reasons(text: str) -> tuple[PrintedReason, ...]:
    """Parse all guards of one printed reason: with TORCH_LOGS=recompiles_verbose torch joins the
    false ones of an entry's shape conditions by "; ", where it otherwise prints the first one."""
    head, _ = _split_stack(text)
    guards: list[str] = []
    rest = ""
    for piece in head.split("; "):
        rest = f"{rest}; {piece}" if rest else piece
        # A guard ends in its place, and another one follows.
        if _PART_END.search(rest):
            guards.append(rest)
            rest = ""
    if rest and guards:
        guards[-1] += f"; {rest}"
    first, *others = guards or [rest]
    numbered = _COMPILE_ID.match(head)
    prefix = numbered[0] if numbered else ""
    stack = text[len(head) :]
    return tuple(parse_reason(part + stack) for part in (first, *(prefix + o for o in others)))


def _split_stack(text: str) -> tuple[str, tuple[Location, ...]]:
    cut = _STACK.search(text)
    if cut is None:
        return text, ()
    frames = tuple(
        Location(matched["file"], int(matched["line"]), matched["name"])
        for matched in _STACK_FRAME.finditer(text, cut.end())
    )
    return text[: cut.start()], frames
