"""`compilediag explain`: what a rule means, or what one finding means in one run."""

from __future__ import annotations

import re

import click

from compilediag.commands import pages
from compilediag.commands.help import Command
from compilediag.commands.params import PATH
from compilediag.commands.terminal import look, write
from compilediag.errors import UsageError
from compilediag.views.text import clean, hanging_indent

_CODE = re.compile(r"CD\d{3}\Z", re.IGNORECASE)
_NUMBER = re.compile(r"F?(\d{1,6})\Z", re.IGNORECASE)


@click.command(
    name="explain",
    cls=Command,
    epilog="""\b
Examples:
  compilediag explain CD103    the page of a rule: bad code, good code, the fix
  compilediag explain 1        finding 1 of the latest run, every fact of it
  compilediag explain --list   every code
""",
)
@click.argument("code_or_number", metavar="CODE|N", required=False)
@click.argument("receipt", required=False, type=PATH)
@click.option("--list", "listing", is_flag=True, help="Every code with its title.")
def command(code_or_number: str | None, receipt: str | None, *, listing: bool) -> None:
    """Explain a rule by its CODE, or finding N of a run.

    RECEIPT is a receipt file or the folder of a run; the default is the latest run.
    """
    if listing:
        write(_list())
        return
    if code_or_number is None:
        raise UsageError("say what to explain: a code such as CD103, or the number of a finding")
    number = _NUMBER.match(code_or_number)
    if number:
        write(_finding(int(number.group(1)), receipt))
    else:
        write(_page(_code_of(code_or_number)))


def _code_of(word: str) -> str:
    """The code meant by a code in any case, or by a slug such as "lazy-buffer"."""
    if _CODE.match(word):
        return word.upper()
    from compilediag.diagnosis.codes import REGISTER

    slug = word.lower().replace("_", "-")
    for code, entry in REGISTER.items():
        if entry.slug == slug:
            return code
    raise UsageError(
        f"{clean(word, limit=60)!r} is no code such as CD103, no slug such as lazy-buffer and no "
        "number of a finding; `compilediag explain --list` names every code"
    )


def _list() -> str:
    """Every code of the register with its slug and sentence."""
    from compilediag.diagnosis.codes import REGISTER

    screen = look()
    lines: list[str] = []
    for code, entry in sorted(REGISTER.items()):
        told = f"{entry.slug}: {entry.sentence}"
        lines += hanging_indent(screen.text(told), screen.width, f"  {code}  ", " " * 9)
    return "\n".join([*lines, "", "  next: compilediag explain CODE"]) + "\n"


def _page(code: str) -> str:
    """The page of a rule, drawn on a terminal and as it is written elsewhere."""
    text = pages.page(code)
    if text is not None:
        return _drawn(text)
    from compilediag.diagnosis.codes import REGISTER

    if code not in REGISTER:
        raise UsageError(f"there is no rule {code}; `compilediag explain --list` names them all")
    entry = REGISTER[code]
    return f"{code} {entry.slug}: {entry.sentence}\n(no page is installed for it)\n"


def _finding(number: int, where: str | None) -> str:
    from compilediag.commands.receipts import load, suffix_for
    from compilediag.views.finding import render_finding

    path, receipt = load(where)
    findings = receipt.findings
    if not 1 <= number <= len(findings):
        known = f"findings 1 to {len(findings)}" if findings else "no findings"
        raise UsageError(f"{path} has {known}, and no {number}")
    finding = findings[number - 1]
    told = render_finding(number, finding, receipt, look())
    text = pages.page(finding.rule)
    following = f"\n  next: compilediag show --timeline{suffix_for(where)}\n"
    return told + ("" if text is None else f"\n{_drawn(text)}") + following


def _drawn(text: str) -> str:
    screen = look()
    if not screen.color:
        return text.rstrip("\n") + "\n"
    import io

    from rich.console import Console
    from rich.markdown import Markdown

    canvas = io.StringIO()
    console = Console(file=canvas, width=screen.width, force_terminal=True)
    console.print(Markdown(text, code_theme="ansi_dark"))
    return canvas.getvalue()
