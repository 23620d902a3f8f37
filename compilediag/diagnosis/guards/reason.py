"""One printed recompile reason, read by torch's grammar into its parts.

    0/1: len(d) == 1      # return x * len(d)  # app/model.py:12 in forward (HINT: ...)
    User stack trace: ...

The grammar holds for torch 2.7 to 2.15; what a version does not print is None. Nothing raises:
text that fits no grammar becomes an expression as it stands.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from compilediag_harness.wire import Location

_COMPILE_ID = re.compile(r"^(!?\d+(?:/\d+)+(?:_\d+)?):[ \t]?")
_STACK = re.compile(r"\n[ \t-]*User stack trace:")
_STACK_FRAME = re.compile(r"File \"(?P<file>[^\"\n]+)\", line (?P<line>\d+), in (?P<name>\S+)")
_HINT = re.compile(r"\s\(HINT: (?P<hint>.*)\)\s*$", re.DOTALL)
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
    stack: tuple[Location, ...] = ()
    """The printed user stack, outermost frame first (torch >= 2.12)."""
    comment: str | None = None
    """Everything torch printed behind the expression: explanations of shape guards."""


def parse_reason(text: str) -> PrintedReason:
    """Reads one reason; never raises."""
    head, stack = _without_stack(text)
    numbered = _COMPILE_ID.match(head)
    body = head[numbered.end() :] if numbered else head
    hinted = _HINT.search(body)
    if hinted:
        body = body[: hinted.start()]
    expression, comment = _split_comment(body)
    user_line, location = _place(comment)
    return PrintedReason(
        compile_id=numbered.group(1) if numbered else None,
        expression=expression,
        user_line=user_line,
        location=_fuller(location, stack),
        hint=hinted.group("hint").strip() if hinted else None,
        stack=stack,
        comment=comment,
    )


def parse_reasons(text: str) -> tuple[PrintedReason, ...]:
    """All guards of one printed reason: with TORCH_LOGS=recompiles_verbose torch joins the false
    ones of an entry's shape conditions by "; ", where it otherwise prints the first one."""
    head, _ = _without_stack(text)
    first, *others = _parts(head)
    numbered = _COMPILE_ID.match(head)
    prefix = numbered[0] if numbered else ""
    stack = text[len(head) :]
    return tuple(parse_reason(part + stack) for part in (first, *(prefix + o for o in others)))


def _parts(head: str) -> list[str]:
    """The text, cut where a guard ends in its place and another one follows."""
    found: list[str] = []
    rest = ""
    for piece in head.split("; "):
        rest = f"{rest}; {piece}" if rest else piece
        if _PART_END.search(rest):
            found.append(rest)
            rest = ""
    if rest and found:
        found[-1] += f"; {rest}"
    return found or [rest]


def _without_stack(text: str) -> tuple[str, tuple[Location, ...]]:
    cut = _STACK.search(text)
    if cut is None:
        return text, ()
    frames = tuple(
        Location(found["file"], int(found["line"]), found["name"])
        for found in _STACK_FRAME.finditer(text, cut.end())
    )
    return text[: cut.start()], frames


def _split_comment(body: str) -> tuple[str, str | None]:
    """The expression and what follows the two or more blanks and `#` behind it."""
    marks = list(_COMMENT.finditer(body))
    if not marks:
        return body.strip(), None
    # A string constant may hold "  # " itself; unbalanced quotes in torch's own wording
    # ("to be a tensor type, ' but found") make every mark look quoted: then the first counts.
    mark = next((found for found in marks if not _ends_in_string(body[: found.start()])), marks[0])
    return body[: mark.start()].strip(), body[mark.start() :].strip()


def _ends_in_string(text: str) -> bool:
    quote, skip = "", False
    for char in text:
        if skip:
            skip = False
        elif quote and char == "\\":
            skip = True
        elif quote:
            quote = "" if char == quote else quote
        elif char in "'\"":
            quote = char
    return bool(quote)


def _place(comment: str | None) -> tuple[str | None, Location | None]:
    """The user's line and its place. A shape guard has two when a branch narrowed it: the last
    one is the branch, the first only where the value was first used."""
    places = tuple(_PLACE.finditer(comment or ""))
    if not places or comment is None:
        return None, None
    found = places[-1]
    line = comment[: found.start()].strip().removeprefix("#").strip()
    line = line.rpartition(") and ")[2]
    return line or None, Location(found["file"].strip(), int(found["line"]), found["name"])


def _fuller(location: Location | None, stack: tuple[Location, ...]) -> Location | None:
    """The place with the whole file name where the printed stack has it; comments shorten it."""
    if location is None:
        return stack[-1] if stack else None
    for frame in reversed(stack):
        if frame.line == location.line and frame.file.endswith(location.file.lstrip("./")):
            return frame
    return location
