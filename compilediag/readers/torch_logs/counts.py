"""The text log of a run (TORCH_LOGS=recompiles,graph_breaks), counted line by line.

This is the second opinion: torch's own messages, counted independently of the events. Any bytes are
accepted. What looks like a recompile or a break and is not understood is counted as unknown, never
skipped, because torch's wording changes between releases.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, field

from compilediag.readers.lines import plain_text, split_lines
from compilediag.timeline.timeline import TextLog
from compilediag_harness.wire import LINES_LEFT_OUT, LOG_OVER_LIMIT

LINE_LIMIT = 65_536
"""Longest line read, in bytes; the rest of a longer one is dropped."""

PROFILE_LIMIT = 64
"""Most messages about a stored profile that are kept."""

# [rank0]:V1120 17:12:26.334000 8288 torch/_dynamo/guards.py:5396] [0/1] [__recompiles] text
PREFIX = re.compile(
    r"(?P<key>(?:\[rank(?P<rank>\d{1,9})\]:)?[VDIWECF]\d{4} "
    r"\d\d:\d\d:\d\d\.\d{1,9} (?P<pid>\d{1,20}) "
    r"[^\]\n]{1,4096}:\d{1,9}\](?: \[(?P<id>!?[\d/_]{1,64})\])?(?: \[(?P<tag>__\w{1,64})\])?) ?"
)
RECOMPILING = re.compile(r"Recompiling function .{1,4096} in .{1,4096}:\d{1,9}\s{0,4}$")
_BREAK = re.compile(
    r"Graph break (?:\([^)]{1,200}\) )?in user code at "
    r"(?P<file>.{1,4096}):(?P<line>\d{1,9})\s{0,4}$"
)
_SKIP = re.compile(r"Graph break: ")
_NO_BREAK = re.compile(r"WON'T CONVERT ")
_STACK_LINE = re.compile(
    r' {2}File "(?P<file>.{1,4096})", line (?P<line>\d{1,9})(?:, in .{0,4096})?$'
)
_TRACEBACK = "Traceback (most recent call last)"
LIMIT = re.compile(r"torch\._dynamo hit config\.\w{0,32}(?:recompile|cache_size)_limit\b")
_PROFILE = re.compile(r"get_code_state .{0,4096} hit (?:local|remote)\b")
_LEFT_OUT = re.compile(re.escape(LINES_LEFT_OUT).replace(r"\{\}", r"(\d{1,9})") + "$")
_LOOKS_LIKE_OURS = re.compile(
    r"Recompiling function |Graph [Bb]reak (?:\(user stack|in user code)"
    r"|torch\._dynamo hit config\."
)


def read_text_log(chunks: Iterable[bytes]) -> TextLog:
    """Counts recompiles, limit warnings and break sites in the bytes of a text log.

    Never raises for what the bytes hold: bad UTF-8 is replaced, terminal escapes are removed, a
    torn last line sets `torn`, and what is not understood is counted in `unknown_lines`.
    Lines without torch's prefix are the program's own output and are ignored, unless they look
    like torch's words (then they are unknown).
    """
    reader = _Reader()
    torn = False
    for line in split_lines(chunks, LINE_LIMIT, carriage_returns=True):
        torn = not line.ended
        if line.raw:
            reader.take(plain_text(line.raw))
    reader.close()
    return TextLog(
        recompiling_lines=reader.recompiling,
        limit_warnings=reader.limits,
        break_sites=frozenset(reader.sites),
        profile_uses=tuple(reader.profiles),
        log_lines=reader.log_lines,
        unknown_lines=reader.unknown,
        torn=torn,
        lines_left_out=reader.left_out,
        over_limit=reader.over_limit,
    )


@dataclass(slots=True)
class _Message:
    """The message that following lines with an equal prefix continue."""

    key: str
    kind: str
    site: tuple[str, int] | None = None
    """Innermost frame so far of a skip report, whose first line has no location."""


@dataclass(slots=True)
class _Reader:
    """State between the lines: which message each process has open; several may share one log."""

    recompiling: int = 0
    limits: int = 0
    unknown: int = 0
    log_lines: int = 0
    left_out: int = 0
    over_limit: bool = False
    sites: set[tuple[str, int]] = field(default_factory=set[tuple[str, int]])
    profiles: list[str] = field(default_factory=list[str])
    _open: dict[str, _Message] = field(default_factory=dict[str, _Message])

    def take(self, line: str) -> None:
        prefix = PREFIX.search(line)
        if prefix is None:
            self.unknown += _LOOKS_LIKE_OURS.search(line) is not None
            return
        self.log_lines += 1
        pid, key, text = prefix["pid"], prefix["key"], line[prefix.end() :]
        tag = prefix["tag"] or ""
        if left_out := _LEFT_OUT.match(text):
            self.left_out += int(left_out[1])
        elif text == LOG_OVER_LIMIT:
            self.over_limit = True
        elif tag.startswith("__recompiles"):
            self._recompile_line(pid, key, text)
        elif tag == "__graph_breaks":
            self._break_line(pid, key, text)
        elif not tag:
            self._plain_line(text)

    def close(self) -> None:
        """Ends every open message: the site of a skip report is known only then."""
        for pid in tuple(self._open):
            self._end(pid)

    def _end(self, pid: str) -> None:
        message = self._open.pop(pid, None)
        if message is not None and message.site is not None:
            self.sites.add(message.site)

    def _begin(self, pid: str, key: str, kind: str) -> None:
        self._end(pid)
        self._open[pid] = _Message(key, kind)

    def _continues(self, pid: str, key: str) -> _Message | None:
        message = self._open.get(pid)
        return message if message is not None and message.key == key else None

    def _recompile_line(self, pid: str, key: str, text: str) -> None:
        if RECOMPILING.match(text):
            self._begin(pid, key, "recompile")
            self.recompiling += 1
        elif not self._continues(pid, key) or not (text.startswith("    ") or not text.strip()):
            self.unknown += 1

    def _break_line(self, pid: str, key: str, text: str) -> None:
        if site := _BREAK.match(text):
            self._begin(pid, key, "break")
            self.sites.add((site["file"], int(site["line"])))
        elif _SKIP.match(text):
            self._begin(pid, key, "skip")
        elif _NO_BREAK.match(text):
            # An error of the backend; its graph break follows as a message of its own.
            self._begin(pid, key, "error")
        elif (message := self._continues(pid, key)) is None:
            self.unknown += 1
        elif message.kind == "skip":
            _skip_line(message, text)

    def _plain_line(self, text: str) -> None:
        if LIMIT.match(text):
            self.limits += 1
        elif _PROFILE.match(text) and len(self.profiles) < PROFILE_LIMIT:
            self.profiles.append(text[:512])


def _skip_line(message: _Message, text: str) -> None:
    """The user's stack comes first, innermost frame last; Dynamo's own traceback follows."""
    if text.startswith(_TRACEBACK):
        message.kind = "traceback"
    elif frame := _STACK_LINE.match(text):
        message.site = (frame["file"], int(frame["line"]))
