"""Makes the rules of gitleaks into the data of our redactor.

    python tools/gitleaks_rules.py PATH/gitleaks.toml COMMIT

gitleaks (https://github.com/gitleaks/gitleaks, MIT, Copyright (c) 2019 Zachary Rice) finds secrets
in source code with Go's regular expressions, whose time is linear. Python's is not, so every
repetition is bounded here, what may precede a name without limit is left out (a rule is tried only
where its keyword stands), and what must follow a secret is only that it goes on no further.
"""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path
from typing import Any

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

TARGET = (
    Path(__file__).resolve().parents[1]
    / "harness/compilediag_harness/redaction/gitleaks_rules.json"
)

LEFT_OUT = {
    "generic-api-key": "names are ours to judge: its list of exceptions is for source code",
    "private-key": "ours needs no end",
    "jwt": "ours is looser",
    "jwt-base64": "an expression of nested repetitions",
    "curl-auth-header": "quadratic; ours finds the header without curl",
    "curl-auth-user": "quadratic",
    "kubernetes-secret-yaml": "a document over many lines",
    "huggingface-access-token": "ours takes any length",
    "huggingface-organization-api-token": "ours takes any length",
    "vault-service-token": "ours has the new ones; old ones, `s.` and 24 letters, are attributes",
    "twilio-api-key": "ours is bounded by what is no letter",
}
"""Rules by id, and why they are not taken."""

NO_SECRETS = re.compile(r"-(?:client-id|access-id|api-id|pub-key|public-key|pub-api-key)\Z")
"""Identifiers and public keys."""

ALTERED = {
    "azure-ad-client-secret": r"([a-zA-Z0-9_~.]{3}\dQ~[a-zA-Z0-9_~.-]{31,34})",
    # Without any 40 hex digits in a text that names the product: a commit.
    "sourcegraph-access-token": (
        r"(?i)\b(sgp_(?:[a-fA-F0-9]{16}|local)_[a-fA-F0-9]{40}|sgp_[a-fA-F0-9]{40})"
    ),
}

WITHOUT_GROUPS = {"microsoft-teams-webhook"}
"""Their groups are parts that repeat."""

PREFIXES = (r"[\w.-]{0,50}?(?i:[\w.-]{0,50}?", r"(?i)[\w.-]{0,50}?", r"[\w.-]{0,50}?")
ENDS = (
    r"""(?:[\x60'"\s;]|\\[nr]|$)""",
    r"""(?:[\x60'"\s;]|\\[nr]|$|\b)""",
    r"(?:[^\w-]|\z)",
    r"(?:[^a-zA-Z0-9+/]|\z)",
    r"""(?:$|[\\'"\x60\s<),])""",
)
NOT_GOING_ON = r"(?![A-Za-z0-9_])"
NAMED_GAP = r"(?:[ \t\w.-]{0,20})"
MOST = 512


def main() -> None:
    """Writes the data."""
    path, commit = sys.argv[1:]
    rules = tomllib.loads(Path(path).read_text(encoding="utf-8"))["rules"]
    taken = [converted(rule) for rule in rules if is_taken(rule)]
    document: dict[str, Any] = {
        "source": "https://github.com/gitleaks/gitleaks/blob/master/config/gitleaks.toml",
        "commit": commit,
        "license": "MIT, Copyright (c) 2019 Zachary Rice; see LICENSE.gitleaks",
        "made_by": "tools/gitleaks_rules.py",
        "rules": sorted(taken, key=lambda rule: rule["id"]),
    }
    listed = ",\n".join(json.dumps(rule) for rule in document.pop("rules"))
    head = json.dumps(document, indent=1).removesuffix("\n}")
    TARGET.write_text(f'{head},\n "rules": [\n{listed}\n ]\n}}\n', encoding="utf-8")
    print(f"{len(taken)} of {len(rules)} rules")


def is_taken(rule: dict[str, Any]) -> bool:
    """Rules that find a secret by what it looks like."""
    named = rule["id"] in LEFT_OUT or NO_SECRETS.search(rule["id"])
    return not named and "regex" in rule and "path" not in rule


def converted(rule: dict[str, Any]) -> dict[str, Any]:
    """One rule as `TokenRule` takes it."""
    original: str = ALTERED.get(rule["id"]) or rule["regex"]
    named = NAMED_GAP in original
    pattern = pattern_of(of_group(original, rule))
    found: dict[str, Any] = {
        "id": rule["id"],
        "keywords": [word.lower() for word in rule["keywords"]],
        "pattern": pattern,
    }
    if not named:
        found["start"] = True
    if not all(begins_with(pattern, word) for word in found["keywords"]):
        found["anywhere"] = True
    if "entropy" in rule:
        found["entropy"] = rule["entropy"]
    if named:
        found["digits"] = True
    allowed = [
        pattern_of(regex)
        for group in rule.get("allowlists", ())
        if group.get("regexTarget", "secret") == "secret"
        for regex in group.get("regexes", ())
    ]
    if allowed:
        found["allowed"] = allowed
    re.compile(pattern)
    return found


def begins_with(pattern: str, word: str) -> bool:
    """Whether what an expression finds for a keyword begins with it, as far as is plain to see."""
    plain = re.sub(r"^(?:\(\?(?:-?i)?:|\((?!\?))+", "", pattern).replace("\\", "").lower()
    first = plain.partition(")")[0].split("|")
    return any(part.startswith(word) or (len(first) > 1 and word == part + "_") for part in first)


def of_group(regex: str, rule: dict[str, Any]) -> str:
    """An expression whose first group is the secret; without groups where all of it is."""
    if rule["id"] in WITHOUT_GROUPS:
        return re.sub(r"(?<!\\)\((?!\?)", "(?:", regex)
    before = rule.get("secretGroup", 1) - 1
    return re.sub(r"(?<!\\)\((?!\?)", "(?:", regex, count=before) if before else regex


def pattern_of(regex: str) -> str:
    """An expression of Go's as one of Python's whose repetitions are bounded."""
    for prefix in PREFIXES:
        if regex.startswith(prefix):
            kept = "(?i:" if prefix.count("(?i:") else "(?i)" if prefix.startswith("(?i)") else ""
            regex = kept + regex.removeprefix(prefix)
            break
    for end in ENDS:
        regex = regex.replace(end, NOT_GOING_ON)
    regex = regex.replace("[[:alnum:]]", "[A-Za-z0-9]").replace(r"\z", r"\Z")
    regex = re.sub(r"^(\(\?i\))?\\b", r"\1", regex)
    return bounded(scoped(regex))


def scoped(regex: str) -> str:
    """`(?i)` holds until the end of its group, which Python spells by a group of its own."""
    while (at := regex.find("(?i)")) >= 0:
        close = end_of_group(regex, at + 4)
        regex = f"{regex[:at]}(?i:{regex[at + 4 : close]}){regex[close:]}"
    return regex


def end_of_group(regex: str, start: int) -> int:
    """Where the group around a position ends: at its parenthesis, or at the end."""
    depth = 0
    for at, piece, in_class in pieces(regex):
        if at < start or in_class:
            continue
        depth += piece == "("
        depth -= piece == ")"
        if depth < 0:
            return at
    return len(regex)


def bounded(regex: str) -> str:
    """Repetitions without an end get one."""
    kept: list[str] = []
    before = ""
    for _, piece, in_class in pieces(regex):
        text = piece
        if not in_class and before not in ("", "(", "|") and piece in ("*", "+"):
            text = f"{{{int(piece == '+')},{MOST}}}"
        kept.append(text)
        before = piece
    return re.sub(
        r"\{(\d+),\}", lambda found: f"{{{found[1]},{max(MOST, int(found[1]))}}}", "".join(kept)
    )


def pieces(regex: str) -> list[tuple[int, str, bool]]:
    """Each character or escape with its position, and whether it stands in a class."""
    found: list[tuple[int, str, bool]] = []
    at, in_class = 0, False
    while at < len(regex):
        size = 2 if regex[at] == "\\" else 1
        piece = regex[at : at + size]
        if piece == "[" and not in_class:
            found.append((at, piece, True))
            in_class = True
            if regex[at + 1 : at + 2] == "]":
                found.append((at + 1, "]", True))
                at += 1
        else:
            found.append((at, piece, in_class))
            in_class = in_class and piece != "]"
        at += size
    return found


if __name__ == "__main__":
    main()
