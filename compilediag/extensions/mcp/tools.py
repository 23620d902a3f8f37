"""The tools of an agent: the arguments of each, and the words of a command of ours that a call
becomes."""

from __future__ import annotations

import re
import shlex
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import msgspec
from msgspec import Meta

from compilediag.errors import UsageError
from compilediag.runs.supervised.target import parse_target

_VARIABLE = re.compile(r"(PY)?TORCH\w*=")


class Arguments(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Arguments of all tools; each has some of them, named as the options of our commands."""

    target: Annotated[str, Meta(description="`train.py --lr 1` or `-m module`, no `python`")] = ""
    name: Annotated[str, Meta(description="key of a finding (CD107-scale) or code of a rule")] = ""
    folder: Annotated[str, Meta(description="working folder, below the server's root")] = "."
    receipt: Annotated[str, Meta(description="folder of a run or certificate; else the latest")] = (
        ""
    )
    patch: Annotated[str, Meta(description="text of a unified diff")] = ""
    env: Annotated[tuple[str, ...], Meta(description="TORCH…=VALUE")] = ()
    config: Annotated[tuple[str, ...], Meta(description="torch._dynamo.config.NAME=VALUE")] = ()
    base: Annotated[str, Meta(description="commit to compare with, not the recorded run")] = ""
    also: Annotated[tuple[str, ...], Meta(description="targets that must give the same")] = ()
    fail_on: Annotated[str, Meta(description="recompiles>0,graph_breaks>0; else the baseline")] = ""
    timeout: Annotated[float, Meta(description="ends each execution; seconds", ge=0)] = 0.0
    cursor: Annotated[str, Meta(pattern=r"^\d{1,9}:\d{1,9}$")] = "0:0"
    stop: Annotated[bool, Meta(description="end the job with all its processes")] = False
    wait_s: Annotated[float, Meta(description="then `more` goes on", ge=0, le=3600)] = 40.0


class Tool(NamedTuple):
    """A command of ours as an agent sees it."""

    about: str
    words: str
    """The command, and the options that it always has."""
    arguments: str
    """In the order of the command line; the first is required where it is `target` or `name`."""


TOOLS = {
    "run": Tool(
        "Execute the program once, before any edit, and record it: recompiles, graph breaks and "
        "fallbacks of torch.compile, each with cause, place and cost.",
        "run --record --json --quiet",
        "target timeout folder wait_s",
    ),
    "findings": Tool("Read the findings of a run again.", "show --json", "receipt folder"),
    "explain": Tool(
        "Read all that is known of a finding, or the page of a rule with bad and good code.",
        "explain --json",
        "name receipt folder",
    ),
    "try": Tool(
        "Certify a change that is not made: a diff, or the setting that a finding offers.",
        "certify --json --quiet",
        "target patch env config timeout folder wait_s",
    ),
    "certify": Tool(
        "Judge the edited files against the recorded run of the same target, in one execution: is "
        "it better by torch's counts, and all results the same, with other inputs too? If proved, "
        "gate the folder that it names.",
        "certify --json --quiet",
        "target base also timeout folder wait_s",
    ),
    "gate": Tool("Judge a run or certificate by limits.", "gate --json", "fail_on receipt folder"),
    "more": Tool("Wait for a job, end it, or read the rest of a reply.", "", "cursor stop wait_s"),
}


def executes(name: str) -> bool:
    """True where a tool runs the program."""
    return TOOLS[name].arguments.startswith("target")


def make_schema(name: str) -> dict[str, Any]:
    """Make the JSON schema of a tool's arguments."""
    names = TOOLS[name].arguments.split()
    _, schemas = msgspec.json.schema_components([Arguments])
    properties = schemas["Arguments"]["properties"]
    required = [names[0]] if names[0] in ("target", "name", "cursor") else []
    chosen = {field: properties[field] for field in names}
    return {"type": "object", "properties": chosen, "required": required}


def parse_arguments(name: str, given: dict[str, Any]) -> Arguments:
    """Check the arguments of a call.

    Raises:
        UsageError: there is no such tool, or it has no such argument.
        msgspec.ValidationError: a value is of another type.
    """
    if name not in TOOLS:
        raise UsageError(f"there is no tool {name[:60]!r}: {', '.join(TOOLS)}")
    schema = make_schema(name)
    unknown = [field[:60] for field in given if field not in schema["properties"]]
    missing = [field for field in schema["required"] if field not in given]
    if unknown or missing:
        known = ", ".join(schema["properties"])
        raise UsageError(f"{name}: no {', '.join(missing or unknown)} ({known})")
    return msgspec.convert(given, Arguments)


def make_words(name: str, call: Arguments, folder: Path, root: Path, scratch: Path) -> list[str]:
    """Make the command line of a call; the text of a diff is written to the file `scratch`.

    Raises:
        UsageError: an argument is refused.
    """
    for line in call.env:
        if not _VARIABLE.match(line):
            raise UsageError(f"env: {line[:200]!r} is no variable of torch, TORCH…=VALUE")
    if call.patch:
        scratch.write_text(call.patch, encoding="utf-8", errors="surrogateescape")
    options = {
        "--patch": [str(scratch)] if call.patch else [],
        "--env": call.env,
        "--config": call.config,
        "--base": [call.base] if call.base else [],
        "--also": [shlex.join(parse_program(line, folder, root)) for line in call.also],
        "--fail-on": [call.fail_on] if call.fail_on else [],
        "--timeout": [call.timeout] if call.timeout else [],
    }
    last = [call.name] if call.name else []
    last += [str(confine(folder, call.receipt, root))] if call.receipt else []
    last += parse_program(call.target, folder, root) if executes(name) else []
    flags = [f"{flag}={value}" for flag, values in options.items() for value in values]
    return [*TOOLS[name].words.split(), *flags, "--", *last]


def confine(folder: Path, path: str, root: Path) -> Path:
    """Resolve a path of a call, with all its links.

    Raises:
        UsageError: it leads out of the root, or is nothing that can be a path.
    """
    try:
        resolved = (folder / path).resolve()
    except (OSError, ValueError, RuntimeError) as error:
        raise UsageError(f"{path[:200]!r} is no path: {error}") from error
    if not resolved.is_relative_to(root):
        raise UsageError(f"{path[:200]!r} is outside of {root}, the root of this server")
    return resolved


def parse_program(target: str, folder: Path, root: Path) -> list[str]:
    """Split the command line of a Python program below the root.

    Raises:
        UsageError: it is anything else.
    """
    try:
        words = shlex.split(target)
    except ValueError as error:
        raise UsageError(f"target: {error}") from error
    # A module of an environment (`-m pip`) is none of the user's programs.
    module = words[1].replace(".", "/") if words[:1] == ["-m"] and len(words) > 1 else None
    places = words[:1] if module is None else [f"{module}.py", f"{module}/__main__.py"]
    found = [path for place in places if (path := confine(folder, place, root)).exists()]
    if not found or parse_target((str(found[0]), *words[1:])).kind != "script":
        raise UsageError(
            f"target: name a Python file in {folder}, or -m and a module there, with its arguments "
            "and without `python`; no shell and no other program is started"
        )
    return words
