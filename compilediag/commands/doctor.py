"""`compilediag doctor`: what can be observed here, what cannot, and why. Each check tries the thing
itself. torch is imported in a child process only: that costs seconds, and torch may crash."""

from __future__ import annotations

import json
import os
import platform
import re
import shutil
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import click

from compilediag._version import __version__
from compilediag.commands.subcommand import subcommand
from compilediag.commands.terminal import get_render_options, write, write_document
from compilediag.errors import EXIT_OK, EXIT_UNUSABLE
from compilediag.json_document import Document
from compilediag.option_fields import flag, option
from compilediag.views.style import RenderOptions
from compilediag.views.text import pad

OLDEST_TORCH = (2, 7)
CHILD_TIMEOUT_S = 120
MIN_FREE_BYTES = 100_000_000
NEEDED_HOOK = "metrics_rows"
"""Without it compiles cannot be counted at all; the other hooks only lower the evidence."""

_PACKAGES = ("torch", "tlparse", "depyf", "triton", "rich", "click", "msgspec")
_PROBE = """
import json, sys
import torch
from compilediag_harness.torch_internals import torch_names
answer = {
    "torch": torch.__version__,
    "git": torch.version.git_version,
    "cuda": torch.version.cuda,
    "devices": torch.cuda.device_count() if torch.cuda.is_available() else 0,
    "hooks": torch_names.probe(),
}
print("\\ncompilediag-probe " + json.dumps(answer))
"""
_DISABLING = ("TORCH_COMPILE_DISABLE", "TORCHDYNAMO_DISABLE")

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


@dataclass(frozen=True, slots=True)
class DoctorOptions:
    """The way in which checks are printed."""

    as_json: bool = flag("--json", "Print the same as JSON.")
    output: Path = option(  # noqa: RUF009 - it is dataclasses.field
        "--output PATH",
        "Where runs would be stored; default: .compilediag.",
        default=Path(".compilediag"),
        type=click.Path(path_type=Path),
    )


@subcommand(
    "doctor",
    DoctorOptions,
    examples="""\
  compilediag doctor          takes a few seconds: torch is started once
  compilediag doctor --json   for a bug report
""",
)
def command(options: DoctorOptions) -> int:
    """Report what compilediag can and cannot observe here, and why.

    The exit code is 0 if `compilediag run` can be used, and 1 if it cannot.
    """
    document = examine(options.output)
    if options.as_json:
        write_document(document)
    else:
        write(render_screen(document, get_render_options()))
    return EXIT_OK if document.usable else EXIT_UNUSABLE


def examine(output: Path) -> DoctorDocument:
    """Run every check; `output` is the folder in which runs would be stored."""
    torch_check, torch_facts = _check_torch()
    hooks = tuple(HookStatus(*row) for row in torch_facts.get("hooks", ()))
    checks = [torch_check]
    if missing := [hook.name for hook in hooks if not hook.available]:
        state, remedy = "warning", "see below what cannot be observed"
        if NEEDED_HOOK in missing:
            state, remedy = "failed", "use a torch that compilediag supports, see README"
        problem = f"this torch lacks {', '.join(missing)}"
        checks.append(Check("hooks", state, problem, remedy))
    checks += [_check_attaching(), _check_output(output)]
    checks += [_check_compiler(), _check_tool("git", "the receipt cannot name the commit that ran")]
    checks += [_check_tool("tlparse", "`compilediag run --tlparse` cannot be used"), *_check_env()]
    from importlib.metadata import PackageNotFoundError, version

    versions: dict[str, str | None] = {
        "compilediag": __version__,
        "Python": f"{platform.python_version()} ({sys.executable})",
    }
    for package in _PACKAGES:
        try:
            versions[package] = version(package)
        except PackageNotFoundError:
            versions[package] = None
    if torch_facts:
        # The torch that is really imported, which need not be the one the metadata names.
        versions["torch"] = f"{torch_facts['torch']} (git {str(torch_facts['git'])[:12]})"
        devices = f"{torch_facts['cuda']}, {torch_facts['devices']} devices"
        versions["CUDA"] = devices if torch_facts["cuda"] else "none: this torch is built for CPUs"
    return DoctorDocument(
        schema="compilediag.doctor",
        usable=all(check.state != "failed" for check in checks),
        versions=versions,
        hooks=hooks,
        checks=tuple(checks),
    )


def render_screen(document: DoctorDocument, options: RenderOptions) -> str:
    """Render versions, checks with remedies, what can and cannot be observed; the result first."""
    failed = [check.name for check in document.checks if check.state == "failed"]
    sign, color, title = "good", "green", "compilediag can be used here"
    following = "run YOUR_PROGRAM.py"
    if not document.usable:
        sign, color, title = "bad", "red", f"compilediag cannot be used here: {', '.join(failed)}"
        following = "doctor again, after the repairs above"
    lines = [options.paint(f"{options.get_sign(sign)} {title}", color), "", "versions"]
    width = max(map(len, document.versions)) + 2
    for name, version in document.versions.items():
        lines.append(f"  {pad(name, width)}{options.clean(version or 'not installed', 80)}")
    lines += ["", "checks"]
    kinds = {"ok": ("good", "green"), "warning": ("warn", "yellow"), "failed": ("bad", "red")}
    for check in document.checks:
        kind, style = kinds[check.state]
        sign = pad(options.get_sign(kind), 2)
        drawn = options.wrap(f"{check.name}: {options.clean(check.said)}", f"  {sign} ", " " * 5)
        lines += [drawn[0].replace(sign, options.paint(sign, style), 1), *drawn[1:]]
        if check.remedy and check.state != "ok":
            lines += options.wrap(options.clean(check.remedy), "     fix: ", style="cyan")
    lines += ["", "what can be observed with this torch"]
    if not document.hooks:
        lines.append("  could not be determined: torch did not start")
    for hook in document.hooks:
        name = options.clean(hook.name, 40)
        if hook.available:
            lines.append(f"  {options.paint(pad(options.get_sign('good'), 2), 'green')} {name}")
            continue
        lost = f"{name} is missing; lost: {options.clean(hook.lost)}"
        lines += options.wrap(lost, f"  {pad(options.get_sign('warn'), 2)} ", " " * 5)
    return "\n".join([*lines, "", f"  next: compilediag {following}"]) + "\n"


def _check_torch() -> tuple[Check, dict[str, Any]]:
    """Start a child that imports torch and probes which of its names the harness can hook."""
    done = _run_child(["-c", _PROBE])
    if isinstance(done, str):
        return Check("torch", "failed", done, "start `python -c 'import torch'` by hand"), {}
    for line in reversed(done.stdout.splitlines()):
        if line.startswith("compilediag-probe "):
            facts = json.loads(line.partition(" ")[2])
            version = str(facts["torch"])
            parts = re.match(r"(\d+)\.(\d+)", version)
            if parts is None or (int(parts[1]), int(parts[2])) >= OLDEST_TORCH:
                return Check("torch", "ok", f"torch {version}"), facts
            problem = f"torch {version} is older than 2.7, the oldest that can be observed"
            return Check("torch", "failed", problem, "pip install 'torch>=2.7'"), facts
    if "No module named 'torch'" in done.stderr:
        remedy = "install compilediag into the environment of your program: it needs its torch"
        return Check("torch", "failed", "torch is not installed here", remedy), {}
    last = (done.stderr.strip().splitlines() or [f"exit code {done.returncode}"])[-1]
    return Check("torch", "failed", f"torch did not start: {last}", "repair torch first"), {}


def _check_attaching() -> Check:
    """Start a child as `compilediag run` does and check that it wrote its journal."""
    from compilediag.runs.supervised.child import make_child_environment

    with tempfile.TemporaryDirectory(prefix="compilediag-doctor-") as folder:
        done = _run_child(["-c", "pass"], make_child_environment(os.environ, folder))
        if isinstance(done, str):
            return Check("attaching", "failed", done, None)
        if any(path.stat().st_size for path in Path(folder).glob("journal-*.jsonl")):
            return Check("attaching", "ok", "a child process attaches and keeps its journal")
        faults = [path.read_text(errors="replace") for path in Path(folder).glob("attach-fault-*")]
    problem = faults[0] if faults else "a child process does not attach: it wrote no journal"
    remedy = "is another sitecustomize imported first? see docs/howto/troubleshooting.md"
    return Check("attaching", "failed", problem, remedy)


def _check_output(folder: Path) -> Check:
    """Write and remove a file where the runs would go; nothing of it stays."""
    parent = next((path for path in (folder, *folder.parents) if path.exists()), folder)
    state, said = "ok", f"{folder} can be written"
    try:
        with tempfile.NamedTemporaryFile(dir=parent, prefix=".compilediag-doctor-") as file:
            file.write(b"x" * 4096)
            file.flush()
        free = shutil.disk_usage(parent).free
        if free < MIN_FREE_BYTES:
            left = f"{free // 1_000_000} MB"
            state, said = "warning", f"{folder} has only {left} left on its disk"
    except OSError as error:
        state, said = "failed", f"{folder} cannot be written: {error.strerror or error}"
    remedy = None if state == "ok" else "run elsewhere, or use `compilediag run --output DIR`"
    return Check("output folder", state, said, remedy)


def _check_compiler() -> Check:
    """Check for a C++ compiler, which Inductor needs on a CPU; torch reads CXX before g++."""
    name = os.environ.get("CXX") or "g++"
    path = shutil.which(name)
    if path:
        return Check("C++ compiler", "ok", path)
    problem = f"{name} was not found: the inductor backend cannot compile for a CPU"
    remedy = 'install g++, or use torch.compile(backend="eager")'
    return Check("C++ compiler", "warning", problem, remedy)


def _check_tool(name: str, without: str) -> Check:
    beside = Path(sys.executable).parent / name
    path = shutil.which(name) or (str(beside) if beside.exists() else None)
    if path:
        return Check(name, "ok", path)
    return Check(name, "warning", f"not found: {without}", f"install {name}")


def _check_env() -> list[Check]:
    """Check for variables of this shell under which a run shows nothing, or something else."""
    off = "=1 switches torch.compile off: nothing will be compiled"
    checks = [
        Check(name, "warning", f"{name}{off}", f"unset {name}")
        for name in _DISABLING
        if os.environ.get(name) == "1"
    ]
    if os.environ.get("TORCH_COMPILE_JOB_ID"):
        problem = "TORCH_COMPILE_JOB_ID is set: stored profiles change what is compiled (CD905)"
        checks.append(Check("stored profiles", "warning", problem, "unset TORCH_COMPILE_JOB_ID"))
    return checks


def _run_child(
    arguments: list[str], environment: dict[str, str] | None = None
) -> subprocess.CompletedProcess[str] | str:
    """Run a Python child to its end; a sentence where that fails."""
    try:
        return subprocess.run(
            [sys.executable, *arguments],
            capture_output=True,
            text=True,
            errors="replace",
            env=environment,
            timeout=CHILD_TIMEOUT_S,
            check=False,
            stdin=subprocess.DEVNULL,
        )
    except subprocess.TimeoutExpired:
        return f"a child process did not end within {CHILD_TIMEOUT_S} s"
    except OSError as error:
        return f"a child process could not be started: {error}"
