"""Reads torch's report of a graph break into its cause, category and place; sites with theirs."""

from __future__ import annotations

import json
import pkgutil
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache, lru_cache
from typing import Any, NamedTuple

from compilediag.diagnosis.codes import LIMIT, REGISTER, Severity
from compilediag.timeline.compiles import Compile, CompileId
from compilediag.timeline.frames import BreakLine
from compilediag.timeline.ownership import classify_ownership
from compilediag.timeline.timeline import BreakSite, Frame, Timeline
from compilediag_harness.base.resumed_frames import find_resumed_function
from compilediag_harness.wire import Location

Patterns = tuple[tuple[str, re.Pattern[str]], ...]
"""A category, and the text of a break of that category."""


@dataclass(frozen=True, slots=True)
class BreakCategories:
    """Graph-break id to category over torch 2.8 to 2.15, and what to do where an id is missing."""

    ids: dict[str, str]
    """"GB0124" to "data_dependent_value"."""
    consequences: dict[str, str]
    """Ids that are no cause by themselves, to the code that stands for them."""
    generic: frozenset[str]
    """Ids that torch uses for unrelated causes: only the debug context distinguishes them."""
    by_context: Patterns
    by_title: Patterns
    by_legacy_title: Patterns
    """Titles of torch 2.7 without an explanation below."""


# Invariant: every repetition is bounded: a report holds text of the program, long or damaged.
_SITE = re.compile(
    r"Graph break (?:\([^)\n]{1,200}\) )?in user code at (?P<file>[^\n]{1,4096}):(?P<line>\d{1,9})"
)
_SKIP_HEAD = re.compile(r"Graph break: ")
_STACK_LINE = re.compile(
    r'^ {2}File "(?P<file>[^"\n]{1,4096})", line (?P<line>\d{1,9})'
    r"(?:, in (?P<name>[^\n]{0,512}))?$",
    re.MULTILINE,
)
_FAILED_STACK = re.compile(r"Original traceback:(?P<text>.{1,8192}?)\n[ \t]*\n", re.DOTALL)
"""Where `torch.fx` says which line of the program an operation comes from that failed."""
_RAISED = re.compile(
    r"^(?:torch\.\S{0,200}\.)?(?P<type>\w{1,80}(?:Error|Exception|Unsupported)|Unsupported): ",
    re.MULTILINE,
)
_REASON = "Graph Break Reason: "
_END = re.compile(r"^(?:Stack variable source attribution:|User code traceback:)", re.MULTILINE)
_SECOND = "*** While handling this graph break, another graph break occurred"
_TRACEBACK = "Traceback (most recent call last)"
_LEAD_IN = re.compile(
    r"(?:Encountered graph break when attempting to trace|Failed to handle graph break gracefully)"
)
_EXPLANATION = re.compile(r"^ {2}Explanation: (?P<text>[^\n]{0,4096})", re.MULTILINE)
_CONTEXT = re.compile(
    r"^ {2}Developer debug context: (?P<text>.{0,4096}?)(?:\n\n|\n {0,2}\Z|\Z)",
    re.MULTILINE | re.DOTALL,
)
_HINT = re.compile(r"^ {2}Hint: (?P<text>[^\n]{0,4096})", re.MULTILINE)
_OPTION = re.compile(
    # One hint of torch's leaves out the module of the options.
    r"torch\._dynamo\.(?:config\.)?(\w{1,80})`?\s?(?:=|to)\s?`?(True|False)\b"
)
_GENERAL_HINT = re.compile(
    r"It may be|Your code may|This (is likely|graph break)|Please |Avoid calling|.*_dynamo\.config"
    rf"|.*{_OPTION.pattern}"
)
"""Of hints about many breaks, or about an option."""
_GB_ID = re.compile(r"/gb/gb(\d{4})\b")
_SKIPPED = re.compile(
    r"(?:module: (?P<module>[^,\n]{1,200}), )?qualname: (?P<name>[^,\n]{1,200}), "
    r"(?:name: [^,\n]{1,200}, filename: `[^`\n]{1,4096}`, )?skip reason: (?P<why>[^\n]{0,300})"
)
_PACKAGE_FILE = re.compile(
    r"in file `[^`\n]{0,4096}?\b(?:site|dist)-packages/"
    r"(?P<file>(?P<package>\w{1,200})[^`\n]{1,1000})`"
)
_SCHEDULER = "torch/optim/lr_scheduler.py"
"""The file of torch that wraps the `step` of every optimizer, torch's own too."""
AS_WRAPPED = "as wrapped in "
"""Of a callee whose wrapper Dynamo skips, and not it: what stands before the wrapper's file."""
_NAMED_IN_CONTEXT = (
    re.compile(r"<function ([^\s]{1,200}) at 0x"),
    re.compile(r"builtin ([a-z_]\w{0,80}) \["),
    re.compile(r"method: <(\w{1,80})[^>\n]{0,200}>\.(\w{1,80})"),
    re.compile(r"call_method UserDefined\w{1,40}\((?:<class ')?([\w.]{1,200})(?:'>)?\) (\w{1,80})"),
    re.compile(r"unsupported operator: ([\w.:]{1,200})"),
    re.compile(r"(?:Backend: \S{1,80}\s{1,20}Exception: ?)?(aten\.[\w.]{1,200})$"),
    re.compile(r"Called `(time\.\w{1,80})\(\)`"),
)
"""Where torch's developer context carries the name of what was called."""
_NAMED = re.compile(r"how to (?:enter a|iterate over) `(?:\w{1,80}\()?([\w.]{1,200})\)?`")
_BUILTIN = re.compile(r"C/C\+\+|Python builtin")
_EXPLICIT = re.compile(
    r"`?torch\.\w{1,20}\.disable\(?\)?`?d? function|graph_break\(\)|Forced graph break"
)


class Callee(NamedTuple):
    """A function, operator or type that Dynamo does not trace."""

    name: str
    """"random.Random.choice", "aten.nonzero.default"."""
    module: str | None
    """None where torch prints none."""
    why: str | None
    """Why Dynamo skips it, in torch's words where it has any."""


@dataclass(frozen=True, slots=True)
class BreakReport:
    """One report of torch: the cause is the first break, a second one its consequence."""

    site: Location | None
    """Where torch reports the break; for a skipped frame the innermost line of the user's stack."""
    gb_ids: tuple[str, ...]
    """Ids of torch's graph-break site, the cause's first; empty up to torch 2.7."""
    title: str
    explanation: str
    context: str
    """torch's developer debug context of the cause."""
    category: str
    """Family of the category's code, "data_dependent_value"."""
    code: str
    """"CD202"; "CD904" or "CD152" when torch only reports a consequence."""
    explicit: bool
    """The user requested it: `graph_break()` or `torch.compiler.disable`."""
    ran_eager: bool
    """The whole frame falls back to eager because of it, in torch's words."""
    callee: Callee | None
    """The function, operator or type that torch could not trace, where its text names it."""
    options: tuple[tuple[str, str], ...]
    """Options of Dynamo's configuration that torch's hints want set: ("allow_rnn", "True")."""
    hints: tuple[str, ...]
    """torch's hints about this very break, options apart."""
    stack: tuple[Location, ...]
    """The user's stack, outermost first; empty when torch suppressed it."""
    failed_at: Location | None = None
    """The line of an operation in the graph that the backend failed at."""

    @property
    def gb_id(self) -> str | None:
        """Id of the cause, "GB0124"."""
        return self.gb_ids[0] if self.gb_ids else None


CODES = {code_info.family: code for code, code_info in REGISTER.items() if code.startswith("CD2")}
"""Of the categories: "data_dependent_value" to "CD202"."""


@lru_cache(maxsize=1024)
def read_break(text: str) -> BreakReport:
    """Read a report of any torch from 2.7 on. Unknown wording ends as "other", never an error."""
    reason, stack = _extract_reason(text), _parse_stack(text)
    cause, second, _ = reason.partition(_SECOND)
    title = _extract_title(cause)
    explanation, context = _find_text(_EXPLANATION, cause), _find_text(_CONTEXT, cause)
    ids = tuple(dict.fromkeys(f"GB{number}" for number in _GB_ID.findall(reason)))
    own_id = next((f"GB{number}" for number in _GB_ID.findall(cause)), None)
    category = _find_category(own_id, title, explanation, context)
    code = load_categories().consequences.get(own_id or "") or CODES[category]
    failed = _SKIP_HEAD.match(text) is not None or reason.startswith("Failed to handle")
    hints = [match["text"] for match in _HINT.finditer(cause)]
    return BreakReport(
        site=_find_site(text, stack),
        gb_ids=ids if own_id else (),
        title=title,
        explanation=explanation,
        context=context,
        category=category,
        code=code,
        explicit=_EXPLICIT.search(title) is not None,
        ran_eager=failed or bool(second) or code == "CD904",
        callee=_find_callee(explanation, context),
        options=tuple(dict.fromkeys(pair for hint in hints for pair in _OPTION.findall(hint))),
        hints=tuple(hint.strip() for hint in hints if not _GENERAL_HINT.match(hint)),
        stack=stack,
        failed_at=_find_failed(cause),
    )


def _find_failed(cause: str) -> Location | None:
    text = re.sub(r"^ *(?=File )", "  ", _find_text(_FAILED_STACK, cause), flags=re.MULTILINE)
    return next(reversed(_list_lines(text)), None)


def _extract_reason(text: str) -> str:
    """Extract the reason: after "Graph Break Reason", or the error that ended the tracing."""
    _, separator, rest = text.partition(_REASON)
    if separator:
        end = _END.search(rest)
        return rest[: end.start()] if end else rest.partition(_TRACEBACK)[0]
    raised = tuple(_RAISED.finditer(text))
    if not raised:
        return text.partition(_TRACEBACK)[0]
    return text[raised[-1].end() :].partition("\nfrom user code:")[0]


def _extract_title(cause: str) -> str:
    """Extract the title: the last line not indented before the explanation, else the first."""
    head, explained, _ = cause.partition("\n  Explanation:")
    lines = [line for line in head.split("\n") if line.strip() and not line.startswith(" ")]
    plain = [line for line in lines if not _LEAD_IN.match(line)]
    if not plain:
        return (lines[0] if lines else head).strip()
    return (plain[-1] if explained else plain[0]).strip()


def _find_category(own_id: str | None, title: str, explanation: str, context: str) -> str:
    """Find the category by id where the id is one cause; else by context, then by title."""
    table = load_categories()
    known = table.ids.get(own_id or "")
    if known is not None and own_id not in table.generic:
        return known
    return (
        _match_category(table.by_context, context)
        or known
        or (None if explanation else _match_category(table.by_legacy_title, title))
        or (_match_category(table.by_title, title) if title else None)
        or "other"
    )


def _match_category(rules: Patterns, text: str) -> str | None:
    return next((category for category, pattern in rules if pattern.search(text)), None)


def _find_callee(explanation: str, context: str) -> Callee | None:
    skipped = _SKIPPED.match(context)
    if skipped is not None:
        module = None if skipped["module"] == "<unknown module>" else skipped["module"]
        name = skipped["name"] if module is None else f"{module}.{skipped['name']}"
        name = name.replace("torch._VariableFunctionsClass.", "torch.")  # where torch has it from
        why = skipped["why"].strip()
        # torch prints the file or folder that it skips, and that is of the machine.
        of_file = why.startswith("file ")
        wrapper = _find_wrapper(module or "", explanation)
        if wrapper is not None:
            return Callee(skipped["name"], module, f"{AS_WRAPPED}{wrapper}")
        if "C extension or builtin" in why or _BUILTIN.search(explanation):
            return Callee(name, module, "no Python source: a builtin or a C extension")
        if not of_file and why not in ("", "<missing reason>"):
            return Callee(name, module, why)
        on_purpose = of_file or "intentionally marked" in explanation
        return Callee(name, module, "Dynamo skips its file on purpose" if on_purpose else None)
    for pattern in _NAMED_IN_CONTEXT:
        if match := pattern.match(context):
            return Callee(".".join(part for part in match.groups() if part), None, None)
    match = _NAMED.search(explanation)
    return Callee(match[1], None, None) if match is not None else None


def _find_wrapper(module: str, explanation: str) -> str | None:
    """Find the file whose code runs under the name of a function of another package. A package's
    own decorator is no wrapper here: under that name the program can reach nothing else."""
    match = _PACKAGE_FILE.search(explanation)
    if match is None:
        return None
    # Which file `__main__` is, is not known.
    foreign = module.partition(".")[0] not in ("", match["package"], "__main__")
    scheduled = match["file"] == _SCHEDULER and module != "torch.optim.lr_scheduler"
    return match["file"] if foreign or scheduled else None


def _find_site(text: str, stack: Sequence[Location]) -> Location | None:
    match = _SITE.search(text)
    if match is None:
        return stack[-1] if stack else None
    site = Location(match["file"], int(match["line"]))
    same = (at for at in reversed(stack) if (at.file, at.line) == (site.file, site.line))
    return next(same, site)


def _parse_stack(text: str) -> tuple[Location, ...]:
    """Parse the user's stack: below "User code traceback:", or a skip report without Dynamo's."""
    _, separator, stack = text.partition("\nUser code traceback:")
    if not separator:
        stack = text if _SKIP_HEAD.match(text) else ""
    return _list_lines(stack.partition(_TRACEBACK)[0])


def _list_lines(stack: str) -> tuple[Location, ...]:
    return tuple(
        Location(frame["file"], int(frame["line"]), frame["name"] or "")
        for frame in _STACK_LINE.finditer(stack)
    )


def _find_text(pattern: re.Pattern[str], text: str) -> str:
    match = pattern.search(text)
    return match["text"].strip() if match else ""


@cache
def load_categories() -> BreakCategories:
    """Load the table of categories that ships with the package."""
    text = pkgutil.get_data("compilediag.rules.breaks", "gb_categories.json")
    assert text is not None, "a file of the package"
    data: dict[str, Any] = json.loads(text)

    def compile_patterns(key: str, flags: int = 0) -> Patterns:
        return tuple((category, re.compile(text, flags)) for category, text in data[key])

    return BreakCategories(
        ids={gb_id: category for category, ids in data["ids"].items() for gb_id in ids},
        consequences=data["consequence_ids"],
        generic=frozenset(data["generic_ids"]),
        by_context=compile_patterns("context_refinements"),
        by_title=compile_patterns("rules", re.IGNORECASE),
        by_legacy_title=compile_patterns("legacy_titles"),
    )


# --- sites ---------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class ReportedBreak:
    """A break site with its report and the frames it belongs to."""

    site: BreakSite
    report: BreakReport
    frames: tuple[Frame, ...]
    """Frames in which torch met the break."""
    resumed: tuple[Frame, ...] = ()
    """Frames that exist because of it: the rest of the function, compiled as one of its own."""

    @property
    def eager_frames(self) -> tuple[Frame, ...]:
        """Frames that ran eager because of it: never those that merely hit the limit."""
        return tuple(f for f in self.frames if f.ran_eager and f.limit_hit_step is None)

    @property
    def ran_eager(self) -> bool:
        """True if the whole frame goes to eager, by torch's word or what the frame became."""
        return self.report.ran_eager or bool(self.eager_frames)

    @property
    def compiled_stack(self) -> Sequence[Location]:
        """The lines of the stack within the compiled frame or the function that it resumes,
        outermost first."""
        stack = self.report.stack
        names = {(frame.where.file, frame.where.function) for frame in self.frames}
        names |= {(file, find_resumed_function(function) or function) for file, function in names}
        entries = (at for at, line in enumerate(stack) if (line.file, line.function) in names)
        return stack[next(entries, len(stack)) :]

    def find_location(self, timeline: Timeline) -> Location:
        """Find the line to change: of the operation that failed, else the site; where that is
        torch's own line, the innermost other line of the compiled frame, or that frame itself,
        where the stack leaves it out (2.13 and later do)."""
        at = Location(self.site.file, self.site.line, self.site.function)
        compiled = [frame.where for frame in self.frames if frame.where.file]
        failed = () if self.report.failed_at is None else (self.report.failed_at,)
        lines = (*failed, at, *reversed(self.compiled_stack), *compiled)
        roots = timeline.user_roots
        return next((it for it in lines if classify_ownership(it.file, roots) != "torch"), at)


def read_break_sites(timeline: Timeline) -> Iterable[ReportedBreak]:
    """Read every break site with its report and the frames in which torch met it."""
    frames = timeline.frames  # a run may have thousands
    attempts: dict[CompileId, list[Compile]] = {}
    for event in timeline.compiles:
        if event.forward:
            # A restart of a compile ("0/0_1") belongs to the compile.
            whole = event.id._replace(compile_id=event.compile_id.partition("_")[0])
            attempts.setdefault(whole, []).append(event)
    order = {frame.key: at for at, frame in enumerate(frames)}
    resumed: dict[tuple[str, str], list[Frame]] = {}
    for frame in frames:
        resumed.setdefault((frame.where.file, frame.where.function), []).append(frame)
    for site in timeline.breaks:
        report = read_break(site.text)
        met = [event for key in sorted(site.attempts) for event in attempts.get(key, ())]
        reason = next((event.fail_reason for event in met if event.fail_reason), None)
        if reason is not None and (not report.title or report.title.startswith("Graph break: ")):
            # 2.7 logs the place of a skipped frame without the reason; its metrics row has it.
            raised = f"Traceback (most recent call last):\nUnsupported: {reason}"
            report = read_break(f"{site.text.rstrip()}\n{raised}")
        within = sorted({order[event.key] for event in met if event.key in order})
        rest = f"torch_dynamo_resume_in_{site.function}_at_{site.line}"
        yield ReportedBreak(
            site,
            report,
            tuple(frames[at] for at in within),
            tuple(resumed.get((site.file, rest), ())),
        )


def merge_broken(parts: Sequence[ReportedBreak]) -> ReportedBreak:
    """Merge breaks of several frames at one operation that failed: the first, with all frames."""
    first = parts[0].site
    ids = dict.fromkeys(compile_id for part in parts for compile_id in part.site.compile_ids)
    steps = dict.fromkeys(step for part in parts for step in part.site.steps)
    count = sum(part.site.count for part in parts)
    site = replace(first, count=count, compile_ids=tuple(ids), steps=tuple(steps))
    frames = tuple(frame for part in parts for frame in part.frames)
    return replace(
        parts[0], site=site, frames=frames, resumed=tuple(f for part in parts for f in part.resumed)
    )


def choose_severity(broken: ReportedBreak, timeline: Timeline) -> Severity:
    """Choose how bad a break is: one that the user asked for, or that is torch's own, is a note."""
    explicit, frames, roots = broken.report.explicit, broken.eager_frames, timeline.user_roots
    owner = classify_ownership(broken.find_location(timeline).file, roots)
    if broken.ran_eager:
        owners = [classify_ownership(frame.where.file, roots) for frame in frames]
        if any(frame_owner != "torch" for frame_owner in owners or [owner]):
            return "warning" if explicit else "error"
    return "info" if explicit or owner == "torch" else "warning"


def find_removable_breaks(timeline: Timeline) -> Mapping[BreakLine, Location]:
    """Find the breaks that the program is to do without, more than notes, and the lines to change
    for them."""
    return {
        broken.site.at: broken.find_location(timeline)
        for broken in read_break_sites(timeline)
        if broken.report.code not in LIMIT and choose_severity(broken, timeline) != "info"
    }
