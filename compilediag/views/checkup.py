"""What `compilediag doctor` found, and how it is shown."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from compilediag.json_document import Document
from compilediag.views.style import RenderOptions
from compilediag.views.text import pad

State = Literal["ok", "warning", "failed"]


@dataclass(frozen=True, slots=True)
class Check:
    """One thing that was tried; a failed one means that compilediag cannot be used here."""

    name: str
    state: State
    said: str
    remedy: str | None = None


@dataclass(frozen=True, slots=True)
class HookStatus:
    """A private name of torch that compilediag builds on."""

    name: str
    available: bool
    lost: str
    """What cannot be observed without it."""


class DoctorDocument(Document, frozen=True, kw_only=True):
    """Everything that was found; `versions` has None for what is not installed."""

    usable: bool
    """Whether `compilediag run` can observe a program here."""
    versions: dict[str, str | None]
    hooks: tuple[HookStatus, ...]
    checks: tuple[Check, ...]


def checkup(
    versions: dict[str, str | None], hooks: Sequence[HookStatus], checks: Sequence[Check]
) -> DoctorDocument:
    """Usable unless a check failed."""
    usable = all(check.state != "failed" for check in checks)
    return DoctorDocument(
        schema="compilediag.doctor",
        usable=usable,
        versions=versions,
        hooks=tuple(hooks),
        checks=tuple(checks),
    )


def render_checkup(found: DoctorDocument, options: RenderOptions) -> str:
    """Versions, checks with remedies, what can and what cannot be observed; the answer first."""
    failed = [check.name for check in found.checks if check.state == "failed"]
    sign, color, answer = "good", "green", "compilediag can be used here"
    following = "run YOUR_PROGRAM.py"
    if not found.usable:
        sign, color, answer = "bad", "red", f"compilediag cannot be used here: {', '.join(failed)}"
        following = "doctor again, after the repairs above"
    lines = [options.styled(f"{options.sign(sign)} {answer}", color), "", "versions"]
    width = max(map(len, found.versions)) + 2
    lines += [
        f"  {pad(name, width)}{options.text(version or 'not installed', 80)}"
        for name, version in found.versions.items()
    ]
    lines += ["", "checks", *(line for item in found.checks for line in _check(item, options))]
    lines += ["", "what can be observed with this torch"]
    if not found.hooks:
        lines.append("  could not be determined: torch did not start")
    for hook in found.hooks:
        lines += _hook(hook, options)
    return "\n".join([*lines, "", f"  next: compilediag {following}"]) + "\n"


def _check(check: Check, options: RenderOptions) -> list[str]:
    kinds = {"ok": ("good", "green"), "warning": ("warn", "yellow"), "failed": ("bad", "red")}
    kind, style = kinds[check.state]
    sign = pad(options.sign(kind), 2)
    lines = options.wrap(f"{check.name}: {options.text(check.said)}", f"  {sign} ", " " * 5)
    lines[0] = lines[0].replace(sign, options.styled(sign, style), 1)
    if check.remedy and check.state != "ok":
        lines += options.wrap(options.text(check.remedy), "     fix: ", style="cyan")
    return lines


def _hook(hook: HookStatus, options: RenderOptions) -> list[str]:
    name = options.text(hook.name, 40)
    if hook.available:
        return [f"  {options.styled(pad(options.sign('good'), 2), 'green')} {name}"]
    lost = f"{name} is missing; lost: {options.text(hook.lost)}"
    return options.wrap(lost, f"  {pad(options.sign('warn'), 2)} ", " " * 5)
