"""The tools of an agent: the arguments of each, and the words of a command of ours that a call
becomes."""

from __future__ import annotations

import re
import shlex
from pathlib import Path
from typing import Annotated, Any, cast

import msgspec
from msgspec import Meta

from compilediag.errors import UsageError
from compilediag.runs.supervised.target import parse_target

_VARIABLE = re.compile(r"(PY)?TORCH\w*=")


def _make_text(about: str) -> Any:
    return Annotated[str, Meta(description=about)]


_ARGUMENTS: dict[str, tuple[Any, Any]] = {
    "target": (_make_text("`train.py --lr 1` or `-m module`, without python"), msgspec.field()),
    "name": (_make_text("key of a finding, or code of a rule"), msgspec.field()),
    "cursor": (Annotated[str, Meta(pattern=r"^\d{1,9}:\d{1,9}$")], msgspec.field()),
    "folder": (_make_text("working folder, below the server's root"), "."),
    "receipt": (_make_text("folder of a run or certificate; default: the latest run"), ""),
    "patch": (_make_text("a unified diff"), ""),
    "env": (tuple[_make_text("TORCH…=VALUE"), ...], ()),
    "config": (tuple[_make_text("torch._dynamo.config.NAME=VALUE"), ...], ()),
    "base": (_make_text("a commit, in place of the recorded run"), ""),
    "also": (tuple[_make_text("a further target that must give the same"), ...], ()),
    "fail_on": (_make_text("recompiles>0,graph_breaks>0; default: the checked-in baseline"), ""),
    "timeout": (Annotated[float, Meta(description="seconds of an execution", ge=0)], 0.0),
    "stop": (Annotated[bool, Meta(description="end the job, with all that it started")], False),
    "wait_s": (Annotated[float, Meta(description="`more` then waits on", ge=0, le=3600)], 40.0),
}
"""Arguments with their types and defaults, named as the options of our commands."""


class Tool:
    """A command of ours as an agent sees it."""

    def __init__(self, about: str, words: str, arguments: str) -> None:
        self.about, self.words = about, words.split()
        self.executes = arguments.startswith("target")
        self.arguments = msgspec.defstruct(
            "Arguments",
            [(name, *_ARGUMENTS[name]) for name in arguments.split()],
            kw_only=True,
            forbid_unknown_fields=True,
        )

    def make_schema(self) -> dict[str, Any]:
        """Make the JSON schema of its arguments."""
        _, schemas = msgspec.json.schema_components([self.arguments])
        return schemas["Arguments"]


_CERTIFY = "certify --json --all --quiet"
TOOLS = {
    "run": Tool(
        "Execute the program once, before any edit, and record it: recompiles, graph breaks and "
        "fallbacks of torch.compile, each with cause, place and cost.",
        "run --record --json --quiet",
        "target timeout folder wait_s",
    ),
    "findings": Tool("Read the findings of a run again.", "show --json", "receipt folder"),
    "explain": Tool(
        "Read all of a finding, or a rule's page: bad and good code.",
        "explain --json",
        "name receipt folder",
    ),
    "try": Tool(
        "Certify a change that is not made: a diff, or a candidate of a finding.",
        _CERTIFY,
        "target patch env config timeout folder wait_s",
    ),
    "certify": Tool(
        "Judge the edited files against the recorded run of the same target: better by torch's "
        "counts, and all results the same, with other inputs too? If proved, gate its folder.",
        _CERTIFY,
        "target base also timeout folder wait_s",
    ),
    "gate": Tool("Judge a run or certificate by limits.", "gate --json", "fail_on receipt folder"),
    "more": Tool("Wait for a job, end it, or read the rest of a reply.", "", "cursor stop wait_s"),
}


def make_words(tool: Tool, call: Any, folder: Path, root: Path, scratch: Path) -> list[str]:
    """Make the command line of a call; the text of a diff is written to the file `scratch`.

    Raises:
        UsageError, OSError, ValueError, RuntimeError: an argument is refused.
    """
    flags: list[str] = []
    last: list[str] = []
    for name, value in msgspec.structs.asdict(call).items():
        if name == "target":
            last += parse_program(value, folder, root)
        elif name == "receipt" and value:
            last.append(str(resolve_path(folder, value, root)))
        elif name == "name":
            last.append(value)
        elif name == "patch" and value:
            scratch.write_text(value, encoding="utf-8", errors="surrogateescape")
            flags.append(f"--patch={scratch}")
        elif value and name not in ("folder", "wait_s", "receipt"):
            several = cast("tuple[str, ...]", value if isinstance(value, tuple) else (value,))
            for one in several:
                if name == "env" and not _VARIABLE.match(one):
                    raise UsageError(f"env: {one[:200]!r} is no variable of torch, TORCH…=VALUE")
                if name == "also":
                    parse_program(one, folder, root)
                flags.append(f"--{name.replace('_', '-')}={one}")
    return [*tool.words, *flags, "--", *last]


def resolve_path(folder: Path, path: str, root: Path) -> Path:
    """Resolve a path of a call, with all its links.

    Raises:
        UsageError: it leads out of the root.
        OSError, ValueError, RuntimeError: it is nothing that can be a path.
    """
    resolved = (folder / path).resolve()
    if not resolved.is_relative_to(root):
        raise UsageError(f"{path[:200]!r} is outside of {root}, the root of this server")
    return resolved


def parse_program(target: str, folder: Path, root: Path) -> list[str]:
    """Split the command line of a Python program below the root.

    Raises:
        UsageError: it is anything else.
        OSError, ValueError, RuntimeError: it is no command line, or no path.
    """
    words = shlex.split(target)
    # A module of an environment (`-m pip`) is none of the user's programs.
    module = words[1].replace(".", "/") if words[:1] == ["-m"] and len(words) > 1 else None
    places = words[:1] if module is None else [f"{module}.py", f"{module}/__main__.py"]
    found = [path for place in places if (path := resolve_path(folder, place, root)).exists()]
    if not found or parse_target((str(found[0]), *words[1:])).kind != "script":
        raise UsageError(
            f"target: name a Python file in {folder}, or -m and a module there, with its arguments "
            "and without `python`; no shell and no other program is started"
        )
    return words
