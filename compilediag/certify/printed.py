"""Lines that two executions printed, compared number by number.

What differs in every execution is masked by a short list: times, rates, memory, dates, process
ids, addresses, temporary paths. A mask counts only where it hides a difference, and is then said.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import lru_cache

from compilediag.certify.calls import ProcessKey, identify_processes
from compilediag.certify.values import MOST_UNSTABLE, ResultComparison, get_cap, is_rounding
from compilediag.rules.make_finding import format_count, shorten
from compilediag.timeline.timeline import Timeline

RELATIVE, ABSOLUTE = 1e-4, 1e-7
"""Of printed numbers that are not integers."""

_LEAST_SCALE = 1e-2
"""The size of a difference is relative to its number, or to this where that is smaller."""

MAX_WARNING = 20
"""Lines of one warning of torch."""

_SHOWN = 80
"""Characters of a line that differs."""

_LEAST_DIGITS = 3
"""Of a number that shows what was computed, and whose last one may turn by rounding: a learning
rate has fewer."""

_DIGITS = r"(?:\d{1,3}(?:,\d{3})+|\d+)(?:\.\d*)?(?:[eE][-+]?\d+)?"
_NUMBER = re.compile(
    rf"(?:(?<![\w.])[-+])?(?<![\w.])(?:{_DIGITS}|\.\d+(?:[eE][-+]?\d+)?|nan|inf)(?![A-Za-z_\d])"
)

# "min 0.2 max 0.9": a word that has a number behind it is no unit of the number before.
_NO_NAME = r"(?![\w/])(?!\s*[=:])(?!\s+[-+]?[\d.])"
_MEASURED = rf"(?<![\w.]){_DIGITS}\s?"
_UNIT = r"(?:[mnuµ]?s|secs?|seconds?|mins?|minutes?|hours?|hrs?)"
_RATE = (
    r"(?:[A-Za-z]*/(?:s|secs?|seconds?|min|h|hour)|(?:m?s|secs?)/\w+|fps|FPS|tps|[TG]FLOP/?[sS])"
)
_WORD = (
    r"(?<![A-Za-z])(?:time|times|runtime|took|elapsed|duration|eta|speed|throughput|mfu|dt|latency"
    r"|fps|tps|memory|per[_ ](?:s|sec|second)|\w+/(?:s|sec|second))(?![A-Za-z])"
)
_BEHIND_WORD = (
    r"(?:[_ /](?:per[_ ]\w+|step|iter|epoch|batch|token|taken|ms|us|s|secs?|seconds|avg|mean|total"
    r"|is|about))?['\"]?\s*(?:\([^()\d]*\)|\[[^\[\]\d]*\])?\s*[:=~]?\s*['\"]?"
)
_MASKS = {
    "addresses": r"\b0x[0-9a-fA-F]{4,}",
    "identifiers": r"\b[0-9a-fA-F]{8}-(?:[0-9a-fA-F]{4}-){3}[0-9a-fA-F]{12}\b",
    "names of generated code": r"<eval_with_key>[.:\d]*",
    "names of gradient functions": r"grad_fn=<\w+>",
    "temporary paths": r"(?:/private)?/(?:tmp|var/folders|dev/shm)/[^\s'\",;)\]]*",
    "paths of runs": r"[^\s'\"(]*\.?compilediag[^\s'\"/]*/[^\s'\",;)\]]*",
    "dates": r"\b\d{4}[-/_]\d\d[-/_]\d\d(?:[T _,-]+\d\d[:_-]\d\d(?:[:_-]\d\d(?:[.,]\d+)?)?)?"
    r"|\b(?:Mon|Tue|Wed|Thu|Fri|Sat|Sun)[ ,]+\w{3} +\d+ [\d:]+ (?:\w+ )?\d{4}",
    "clock times": r"(?<![\d:])(?:\d+ days?, )?(?:\d+:\d\d:\d\d|\d\d:\d\d)(?:[.,]\d+)?(?![\d:])",
    # `model.py:7`, `model.py", line 7`, and `| model:forward:7 -` of loguru.
    "lines of source": r"(?<=\.py)[:(]\d+\b|(?<=\.py\", line )\d+"
    r"|(?<=\| )[\w.]+:[\w<>]+:\d+(?= - )",
    "process ids": r"\b(?:pid|PID|[Pp]rocess id)\W{0,3}\d+",
    "rates": rf"{_MEASURED}{_RATE}{_NO_NAME}",
    # "22s1ms", "1h3m5s" too.
    "times": rf"(?<![\w.])(?:\d+(?:[dDhm]|min|s|ms))*{_DIGITS}\s?{_UNIT}"
    rf"(?: \(\d+:\d\d:\d\d\))?{_NO_NAME}",
    "memory": rf"{_MEASURED}(?:[KMGT]i?B|[kKMG]b|bytes){_NO_NAME}",
    "numbers after a word of time": rf"(?P<word>(?i:{_WORD}{_BEHIND_WORD}))"
    rf"[-+]?(?:{_DIGITS}(?::\d\d)*(?:\.\d+)?|nan|inf)",
}
_MASK = re.compile("|".join(f"(?P<m{at}>{mask})" for at, mask in enumerate(_MASKS.values())))

_TORCH_LOG = re.compile(
    r"\[?(?:rank\d+\]:? ?)?\[?[VIWEC]\d{4} \d\d:\d\d:\d\d\.\d+ \S* ?(?:\S*torch/\S+|\S+\.cpp):\d+\]"
)
_WARNING = re.compile(r"(?P<file>\S+\.py|<eval_with_key>[.\d]*):\d+: (?P<text>\w*Warning\b.*)")
_TORCH_OWN = re.compile(r"torch[/\\]_(?:dynamo|inductor|functorch|compile)|torch[/\\]fx[/\\]")
_OF_GRAPHS = re.compile(r"<eval_with_key>|[/\\]torch[/\\]")
"""Code of a graph, and that of torch which a frame runs in its place."""
_INTERNAL = "(Triggered internally at "
"""In a warning of torch's C++ code, which names the program's line that it is about."""
_TRACEBACK = "Traceback (most recent call last):"
_PROGRESS = re.compile(r"\r|\d+%\|.*\||\d(?:it/s|s/it)\b")

StreamKey = tuple[ProcessKey, str]


@dataclass(frozen=True, slots=True)
class PrintedLine:
    """One printed line, taken apart."""

    text: str  #: With a mark in place of each number and of what is masked.
    numbers: tuple[str, ...]
    masked: tuple[tuple[str, str], ...]  #: Why, and what.


@lru_cache(maxsize=1 << 14)
def read_line(line: str) -> PrintedLine:
    """Take a printed line apart."""
    masked: list[tuple[str, str]] = []
    reasons = list(_MASKS)

    def replace(match: re.Match[str]) -> str:
        word = match["word"] or ""
        masked.append((reasons[int((match.lastgroup or "m0")[1:])], match[0][len(word) :]))
        return f"{word}⟨masked⟩"

    text = _MASK.sub(replace, line)
    return PrintedLine(_NUMBER.sub("#", text), tuple(_NUMBER.findall(text)), tuple(masked))


def read_printed(timeline: Timeline) -> dict[StreamKey, list[str]]:
    """Read what each process printed; of stderr without the log of torch, its own warnings on
    compiling and on how a line is written, progress bars, and the places of warnings: a change may
    move them."""
    keys = identify_processes(timeline)
    lines: dict[StreamKey, list[str]] = {}
    for record in timeline.printed:
        key = keys.get(record.process, (0, 0)), record.stream
        digests = record.digests or ("",) * len(record.lines)
        pairs = zip(record.lines, digests, strict=True)
        # What was left out of a line, a secret or its end, is compared all the same.
        texts = (f"{line} [{digest}]" if digest else line for line, digest in pairs)
        lines.setdefault(key, []).extend(texts)
    return {
        key: _select_own_lines(printed) if key[1] == "stderr" else printed
        for key, printed in lines.items()
    }


def _select_own_lines(lines: Sequence[str]) -> list[str]:
    own: list[str] = []
    warned = set[str]()
    is_source, is_frame, behind = False, False, 0
    for number, line in enumerate(lines):
        # Of a traceback the error is compared: its frames show lines that the change may edit.
        is_frame = line.startswith(_TRACEBACK) or (is_frame and line.startswith("  "))
        if number < behind or is_frame:
            continue
        if is_source and line.startswith("  "):  # the line that warned
            is_source = False
            continue
        warning = _WARNING.search(line)
        is_source = warning is not None
        if _TORCH_LOG.match(line) or _PROGRESS.search(line):
            continue
        if warning is None:
            own.append(line)
        elif _TORCH_OWN.search(warning["file"]):
            behind = _find_end_of_warning(lines, number)
        elif (last := _find_internal(lines, number)) is not None:
            behind = last + 1  # the line of source follows
        elif warning["text"] not in warned:
            own.append(warning["text"])
            if _OF_GRAPHS.search(warning["file"]):  # printed once for each graph
                warned.add(warning["text"])
    return own


def _find_internal(lines: Sequence[str], number: int) -> int | None:
    """Find the last line of a warning of torch's C++ code, which begins at one."""
    for at in range(number, min(number + MAX_WARNING, len(lines))):
        if _INTERNAL in lines[at]:
            return at
        if lines[at].startswith("  "):  # a line of source: another warning's
            return None
    return None


def _find_end_of_warning(lines: Sequence[str], number: int) -> int:
    """Find where a warning of torch ends: its text may have several lines, and the last is the line
    of source that warned."""
    ends = range(number + 1, min(number + MAX_WARNING, len(lines)))
    is_source = (at for at in ends if lines[at].startswith("  ") and "warn" in lines[at])
    return next(is_source, number) + 1


@dataclass(slots=True)
class _Tally:
    """Counts of what was compared, and of what was not."""

    lines: int = 0
    numbers: int = 0
    computed: int = 0  #: Numbers that calls may have computed.
    unstable: int = 0
    masked: Counter[str] = field(default_factory=Counter[str])
    moved: set[str] = field(default_factory=set[str])  #: Lines with a number that is not stable.
    largest: float | None = 0.0  #: Difference of eager; None where it is no measure any more.


def compare_printed(
    before: Timeline,
    after: Timeline,
    again: Timeline | None = None,
    eager: Timeline | None = None,
    *,
    turning: bool = False,
) -> ResultComparison:
    """Compare what two executions printed, line by line; see `judge` for the other two. `turning`:
    all compiled calls are equal within tolerance; then a number's last digit may differ by one."""
    ours, theirs = read_printed(before), read_printed(after)
    others = None if again is None else read_printed(again)
    reference = {} if eager is None else read_printed(eager)
    tally, difference, size = _Tally(), None, math.inf
    notes: list[str] = []
    for key in sorted({*ours, *theirs}):
        lines, new = ours.get(key, []), theirs.get(key, [])
        unchanged = lines if others is None else others.get(key, [])
        if len(unchanged) != len(lines):
            counts = f"{len(lines)} and {len(unchanged)} lines on {key[1]}"
            if key[1] == "stdout":
                why = f"two unchanged executions print {counts}"
                return ResultComparison(difference=why, decided=False)
            notes.append(f"not compared: two unchanged executions print {counts}")
            continue
        found, its_size = _compare_stream(
            lines, new, unchanged, reference.get(key, []), tally, turning
        )
        if found is not None and difference is None:
            difference, size = found, its_size
    notes += [f"masked in {format_count(n, 'line')}: {why}" for why, n in tally.masked.items()]
    notes += [f"not compared, differs when unchanged: {line}" for line in sorted(tally.moved)]
    if tally.unstable > MOST_UNSTABLE * tally.numbers:
        why = f"{tally.unstable} of {tally.numbers} printed numbers differ when nothing is changed"
        return ResultComparison(difference=why, decided=False, notes=tuple(notes))
    # Where eager is itself farther away, a difference may be rounding or not.
    decided = eager is None or tally.largest is not None or not math.isfinite(size)
    return ResultComparison(
        tally.lines, difference, size, decided, tuple(notes), tally.computed > 0
    )


def _compare_stream(
    lines: Sequence[str],
    new: Sequence[str],
    unchanged: Sequence[str],
    eager: Sequence[str],
    tally: _Tally,
    turning: bool,
) -> tuple[str | None, float]:
    """Compare the lines of one stream: the first difference, and its relative size."""
    first: tuple[str | None, float] = None, 0.0
    for at, (line, now, other) in enumerate(zip(lines, new, unchanged, strict=False)):
        parts = read_line(line), read_line(now), read_line(other)
        if parts[0].text != parts[2].text:
            tally.moved.add(shorten(parts[0].text, 60))
            continue
        reference = read_line(eager[at]) if at < len(eager) else None
        size = _compare_line(parts, reference, tally, turning)
        if size is None:
            for (why, hidden), (_, seen) in zip(parts[0].masked, parts[1].masked, strict=True):
                tally.masked[why] += hidden != seen
        elif first[0] is None or (math.isinf(size) and not math.isinf(first[1])):
            first = f"it prints {_quote(now, line)}, not {_quote(line, now)}", size
    if len(lines) != len(new):
        at = next(
            (at for at, (line, now) in enumerate(zip(lines, new, strict=False)) if line != now),
            min(len(lines), len(new)),
        )
        longer, what = (
            (lines, "no longer prints") if len(lines) > len(new) else (new, "also prints")
        )
        return f"it {what} {shorten(longer[at], 80)!r}, or another line like it", math.inf
    return first


def _quote(line: str, other: str) -> str:
    """Quote a printed line around where it begins to differ from another one."""
    same = next(
        (at for at, pair in enumerate(zip(line, other, strict=False)) if len({*pair}) > 1),
        min(len(line), len(other)),
    )
    start = max(0, same - _SHOWN // 2) if len(line) > _SHOWN else 0
    return repr(("…" if start else "") + shorten(line[start:], _SHOWN))


def _compare_line(
    parts: tuple[PrintedLine, PrintedLine, PrintedLine],
    eager: PrintedLine | None,
    tally: _Tally,
    turning: bool,
) -> float | None:
    """Compare a line with that of the new state: relative size of their difference, None where
    they are equal. `parts`: the old line, the new one, and the old one again."""
    line, now, again = parts
    masks = [[why for why, _ in part.masked] for part in (line, now)]
    if line.text != now.text or masks[0] != masks[1]:
        return math.inf
    tally.lines += 1
    largest = None
    is_known = eager is not None and eager.text == line.text
    references = eager.numbers if eager is not None and is_known else line.numbers
    for old, new, other, reference in zip(
        line.numbers, now.numbers, again.numbers, references, strict=True
    ):
        tally.numbers += 1
        tally.computed += not _is_integer(old) and _count_digits(old) >= _LEAST_DIGITS
        if eager is not None and tally.largest is not None:
            size = _measure(old, reference, turning=False)
            known = size is not None and is_known and size <= get_cap(())
            tally.largest = max(tally.largest, size or 0.0) if known or size is None else None
        if _measure(old, other, turning=turning) is not None:
            tally.unstable += 1
            tally.moved.add(shorten(line.text, 60))
            continue
        size = _measure(old, new, turning=turning)
        excused = size is not None and eager is not None and tally.largest is not None
        if size is None or (excused and is_rounding(size, tally.largest or 0.0, get_cap(()))):
            continue
        largest = max(largest or 0.0, size)
    return largest


def _is_integer(text: str) -> bool:
    return text.lstrip("+-").replace(",", "").isdigit()


def _count_digits(text: str) -> int:
    mantissa = text.lower().partition("e")[0]
    return len("".join(filter(str.isdigit, mantissa)).lstrip("0"))


def _measure(old: str, new: str, *, turning: bool) -> float | None:
    """Measure the relative difference of two printed numbers; None where they are equal."""
    if old == new:
        return None
    if _is_integer(old) or _is_integer(new):
        return math.inf
    before, after = float(old.replace(",", "")), float(new.replace(",", ""))
    if not (math.isfinite(before) and math.isfinite(after)):
        return math.inf
    apart = abs(after - before)
    if math.isclose(before, after, rel_tol=RELATIVE, abs_tol=ABSOLUTE):
        return None
    is_long = _count_digits(old) >= _LEAST_DIGITS
    if turning and is_long and apart <= 1.001 * max(_get_last_digit(old), _get_last_digit(new)):
        return None
    return apart / max(abs(before), _LEAST_SCALE)


def _get_last_digit(text: str) -> float:
    """Get the value of one in the last digit of a printed number."""
    mantissa, _, exponent = text.lower().partition("e")
    return 10.0 ** (int(exponent or 0) - len(mantissa.partition(".")[2]))
