"""`compilediag explain`: what a rule means, or what one finding means in one run.

A wheel carries the pages of rules, `docs/rules/`, as `compilediag/docs/rules/`; an editable install
has them in the repository beside the package. No page is generated here.
"""

from __future__ import annotations

import contextlib
import re
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from compilediag import extension_points
from compilediag.commands.subcommand import subcommand
from compilediag.commands.terminal import (
    format_document,
    get_render_options,
    is_terminal,
    write,
    write_document,
    write_paged,
)
from compilediag.diagnosis.codes import REGISTER, CodeInfo
from compilediag.errors import ReproImpossible, UsageError
from compilediag.option_fields import argument, flag, names_finding, option
from compilediag.views.text import clean

if TYPE_CHECKING:
    from compilediag.receipt.schema.receipt import Receipt
    from compilediag.views.finding import RuleDocument

_PACKAGE = Path(__file__).resolve().parent.parent
_PAGES = next(
    (path for folder in (_PACKAGE, _PACKAGE.parent) if (path := folder / "docs/rules").is_dir()),
    _PACKAGE,
)
_CODE = re.compile(r"CD\d{3}\Z", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class ExplainOptions:
    """The rule or finding to explain."""

    words: tuple[str, ...] = argument(metavar="[CODE|N|KEY]... [RECEIPT]", nargs=-1, default=())
    complete: bool = flag("--all", "Show every fact of a finding, not just one screen.")
    listing: bool = flag("--list", "List every code with its title.")
    issue: bool = flag(
        "--issue", "Print Markdown for an issue about these findings, or all: versions, programs."
    )
    program: str | None = option(
        "--repro FILE", "Write a small program that shows the cause of a finding; - prints it."
    )
    skill: bool = flag("--skill", "Print SKILL.md: the loop for an agent, and facts about torch.")
    as_json: bool = flag("--json", "Print the same as JSON.")


@subcommand(
    "explain",
    ExplainOptions,
    examples="""\
  compilediag explain 1        finding 1 of the latest run, on one screen
  compilediag explain 1 3      several
  compilediag explain 1 --all  with every fact
  compilediag explain CD103-rotary    the finding with that key, which is the same over runs
  compilediag explain CD103    the page of a rule: bad code, good code, the fix
  compilediag explain 1 --issue > issue.md      finding 1 as the text of an issue
  compilediag explain 1 --repro repro_1.py      a small program with the same cause
  compilediag explain --list   every code
  compilediag explain --skill  what an agent has to know
  compilediag explain 1 --json    the finding, its compiles and its rule, for a program
""",
)
def command(options: ExplainOptions) -> None:
    """Explain a rule by its CODE, or a finding by its number N or its KEY.

    RECEIPT is a receipt file or the folder of a run; the default is the latest run. Several in one
    call are printed one below the other.
    """
    screen = get_render_options()
    named, where = _split_words(options.words)
    if options.skill:
        write(read_skill())
    elif options.issue:
        write(render_issue_of(options.words))
    elif options.program is not None:
        repro = extension_points.load(extension_points.COMMANDS["repro"], "--repro")
        json = ["--json"] if options.as_json else []
        words = [*options.words, "--output", options.program, *json]
        repro.main(words, prog_name="compilediag explain --repro", standalone_mode=False)
    elif options.listing and options.as_json:
        from compilediag.views.finding import RulesDocument

        rules = tuple(_make_rule_document(code) for code in sorted(REGISTER))
        write_document(RulesDocument(schema="compilediag.rules", rules=rules))
    elif options.listing:
        lines: list[str] = []
        for code, entry in sorted(REGISTER.items()):
            text = screen.clean(f"{entry.slug}: {entry.sentence}")
            lines += screen.wrap(text, f"  {code}  ", " " * 9)
        write("\n".join([*lines, "", "  next: compilediag explain CODE"]) + "\n")
    elif not named:
        raise UsageError("say what to explain: a code such as CD103, or the number of a finding")
    elif options.as_json and len(named) > 1:
        raise UsageError("--json prints one document: name one rule or finding")
    else:
        text = "\n".join(_explain(word, where, options) for word in named)
        paged = not options.as_json and not any(map(names_finding, named))
        (write_paged if paged else write)(text)


def _split_words(words: tuple[str, ...]) -> tuple[tuple[str, ...], str | None]:
    """Split what is to be explained from the receipt, which comes last."""
    if len(words) > 1 and not names_finding(words[-1]) and _find_code(words[-1]) is None:
        return words[:-1], words[-1]
    return words, None


def _explain(word: str, where: str | None, options: ExplainOptions) -> str:
    """Explain one rule or finding, as text or JSON."""
    if not names_finding(word):
        code = _find_code(word)
        if code is None:
            raise UsageError(
                f"{clean(word, limit=60)!r} is no code such as CD103, no slug such as lazy-buffer "
                "and no number of a finding; `compilediag explain --list` names every code"
            )
        text, entry = read_page(code), _get_code_info(code)
        if options.as_json:
            return format_document(_make_rule_document(code))
        missing = f"{code} {entry.slug}: {entry.sentence}\n(no page is installed for it)\n"
        return missing if text is None else _render_markdown(text)
    from compilediag.commands.receipts import format_suffix, load_finding
    from compilediag.views.finding import build_finding_document, render_finding

    receipt, finding = load_finding(word, where)
    number = int(finding.id[1:])
    if options.as_json:
        rule = _make_rule_document(finding.rule)
        return format_document(build_finding_document(number, receipt, rule, format_suffix(where)))
    return render_finding(number, finding, receipt, get_render_options(), whole=options.complete)


def render_issue_of(words: Sequence[str]) -> str:
    """Render the text of an issue about the findings that are named, or all of a receipt's.

    Raises:
        UsageError: there is no such finding.
    """
    from compilediag.commands.receipts import load_finding, load_receipt
    from compilediag.views.lookups import list_main_findings
    from compilediag.views.summary import render_issue

    named = [word for word in words if names_finding(word)]
    where, *more = [*(word for word in words if word not in named), None]
    if more[1:]:
        raise UsageError(f"--issue {clean(words[0], limit=60)}: the number of a finding, such as 1")
    found = [load_finding(word, where) for word in named]
    receipt = found[0][0] if found else load_receipt(where)[1]
    numbers = [int(finding.id[1:]) for _, finding in found]
    numbers = numbers or [index for index, _ in list_main_findings(receipt)]
    programs = dict[int, str]()
    point = extension_points.SMALL_PROGRAM
    if extension_points.is_installed(point):
        build: Callable[[int, Receipt], str] = extension_points.load(point, "--issue")
        for index in numbers:
            with contextlib.suppress(ReproImpossible):
                programs[index] = build(index, receipt)
    return render_issue(receipt, numbers, programs, root=get_render_options().root)


def _make_rule_document(code: str) -> RuleDocument:
    """Make the document of one rule with its page, for programs."""
    from compilediag.views.finding import RuleDocument

    entry = _get_code_info(code)
    return RuleDocument(
        schema="compilediag.rule",
        code=entry.code,
        slug=entry.slug,
        sentence=entry.sentence,
        severity=entry.severity,
        page=read_page(code),
    )


def _get_code_info(code: str) -> CodeInfo:
    if code not in REGISTER:
        raise UsageError(f"there is no rule {code}; `compilediag explain --list` names them all")
    return REGISTER[code]


def read_page(code: str) -> str | None:
    """Read the Markdown page of `code` ("CD103", any case); None when there is no such page."""
    path = _PAGES / f"{code.upper()}.md"
    # A code comes from the command line or from a receipt: it must not become another path.
    return path.read_text(encoding="utf-8") if _CODE.match(code) and path.is_file() else None


def read_skill() -> str:
    """Read the page for agents, in Markdown."""
    return (_PAGES.parent / "skill" / "SKILL.md").read_text(encoding="utf-8")


def list_codes_with_page() -> tuple[str, ...]:
    """List every code that has a page, in order."""
    return tuple(sorted(path.stem for path in _PAGES.glob("CD*.md") if _CODE.match(path.stem)))


def _find_code(word: str) -> str | None:
    """Find the code that a word names, in any case, or as a slug such as "lazy-buffer"."""
    slug = word.lower().replace("_", "-")
    known = (code for code, entry in REGISTER.items() if entry.slug == slug)
    return word.upper() if _CODE.match(word) else next(known, None)


def _render_markdown(text: str) -> str:
    """Render Markdown on a terminal, or in colour; elsewhere it stays as it is written."""
    screen = get_render_options()
    if not (screen.color or is_terminal(sys.stdout)):
        return text.rstrip("\n") + "\n"
    import io

    from rich.console import Console
    from rich.markdown import Markdown

    canvas = io.StringIO()
    console = Console(
        file=canvas, width=screen.width, force_terminal=True, no_color=not screen.color
    )
    console.print(Markdown(text, code_theme="ansi_dark"))
    return canvas.getvalue()
