"""Keys of findings: names that stay the same over runs, such as CD103-rotary.

A key is the rule and the last name of the variable, else of the function. Findings of one run that
share these get four hexadecimal digits of what else tells them apart; no key counts, because
numbers move when another finding comes or goes. Made from what the receipt stores, redacted as it.
"""

from __future__ import annotations

import hashlib
import re
from collections import Counter
from collections.abc import Sequence

from msgspec.structs import replace

from compilediag.receipt.schema.compiles import FindingRecord, mask_indices
from compilediag_harness.base.resumed_frames import find_resumed_line, get_whole_function

MAX_NAME = 40  #: Characters of a name in a key.
_NAME = re.compile(r"[^\W\d]\w*")
_ON_STACK = re.compile(r"___stack[0-9]+")
_INSTALLED = re.compile(r".*/(?:site|dist)-packages/", re.DOTALL)
_STANDARD_LIBRARY = re.compile(r".*/lib(?:64)?/python3(?:\.[0-9]{1,3}t?)?/", re.DOTALL)
_GENERATED = re.compile(r"<[^<>]{1,80}>")
#: Addresses and ids of objects, which differ in every run.
_ADDRESS = re.compile(r"0x[0-9a-fA-F]{4,16}\b|\b[0-9]{12,20}\b")
_FOLDERS_SHOWN = 2
"""Last parts shown of a file that lies neither below the working directory nor in a package."""


def assign_keys(findings: Sequence[FindingRecord]) -> tuple[FindingRecord, ...]:
    """Give each finding of a receipt its key."""
    short = [f"{finding.rule}-{_choose_name(finding)}" for finding in findings]
    keys = short
    for facts in ("", "kind", "kind and line"):
        shared = Counter(keys)
        keys = [
            f"{name}-{_compute_digest(finding, facts)}" if shared[key] > 1 else key
            for finding, name, key in zip(findings, short, keys, strict=True)
        ]
    return tuple(replace(one, key=key) for one, key in zip(findings, keys, strict=True))


def _choose_name(finding: FindingRecord) -> str:
    function = "" if finding.location is None else normalize_function(finding.location.function)
    variable = mask_indices(mask_addresses(finding.variable or ""))
    for text in (variable, function.partition(" ")[0]):
        if names := _NAME.findall(text):
            return names[-1][:MAX_NAME]
    return finding.slug


def _compute_digest(finding: FindingRecord, more: str) -> str:
    """Compute four digits from frame and source; the title tells apart two breaks of a function.
    `more`: of findings that share these too, the kind, which the title names, and at last the
    line, which moves with every edit above: for what follows two breaks of one function."""
    facts = [finding.variable or finding.title or ""]
    facts += [finding.title or ""] if "kind" in more else []
    if (place := finding.location) is not None:
        facts += [normalize_file(place.file), normalize_function(place.function)]
        facts += [str(place.line)] if "line" in more else []
    text = "\x00".join(map(mask_addresses, facts))
    return hashlib.sha256(text.encode("utf-8", "replace")).hexdigest()[:4]


def mask_addresses(text: str) -> str:
    """Replace addresses and ids of objects, which differ in every run, by "..."."""
    return _ADDRESS.sub("...", text)


def normalize_function(name: str) -> str:
    """Remove the line number: torch names what follows a graph break after its line."""
    whole = get_whole_function(name)
    return name if whole == name else f"{whole} (resumed)"


def name_carried(variable: str, function: str) -> str:
    """Name what Dynamo carries over a graph break, on the stack, by the line of the break, as in
    "line 12: value[0]"; any other variable as it is."""
    line, carried = find_resumed_line(function), _ON_STACK.match(variable)
    if not line or carried is None:
        return variable
    return f"line {line}: value{variable[carried.end() :]}"


def normalize_file(file: str) -> str:
    """Make a file the same everywhere: below the working directory as it is; packages by name."""
    file = file.replace("\\", "/")
    if (generated := _GENERATED.match(file)) is not None:
        return generated[0]
    for pattern, root in ((_INSTALLED, "site-packages/"), (_STANDARD_LIBRARY, "python/")):
        if (match := pattern.match(file)) is not None:
            return root + file[match.end() :]
    if not file.startswith(("/", "~")) and file[1:3] != ":/":
        return file
    return "/".join(["...", *file.split("/")[-_FOLDERS_SHOWN:]])
