"""One scenario: `compilediag fix` on a copy of its broken.py, and plain runs that check it."""

from __future__ import annotations

import hashlib
import importlib
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

from page import Finding, Result
from plain import PROGRAM, CannotFollow, Counted, check, counted, followed

ROOT = Path(__file__).resolve().parents[2]
SCENARIOS = ROOT / "scenarios"
sys.path.insert(0, str(ROOT / "tests" / "support"))

LIMIT_S = 1800
STDERR = "stderr.txt"
OF_THE_ENVIRONMENT = ("TORCH_LOGS", "TORCH_TRACE", "TORCH_COMPILE_JOB_ID", "COMPILEDIAG")
"""Settings of the machine that would change what a program does."""


def names() -> list[str]:
    """Every scenario."""
    return sorted(path.parent.name for path in SCENARIOS.glob("*/broken.py"))


def digest(name: str) -> str:
    """Of the program whose findings a result is about."""
    return hashlib.sha256((SCENARIOS / name / PROGRAM).read_bytes()).hexdigest()[:12]


def tried(name: str, folder: Path) -> Result:
    """Makes all runs of a scenario.

    Args:
        name: the scenario.
        folder: gets the program and its runs; what is there is removed.
    """
    cases: Any = importlib.import_module("scenario_cases")
    found: Any = cases.case(name, "broken", cases.torch_version())
    torch = str(cases.torch_version())
    result = Result(scenario=name, program=digest(name), torch=torch, not_run=None, findings=[])
    if found.skip or (found.needs == "cuda" and not _has_cuda()):
        result["not_run"] = found.skip or "needs CUDA"
        return result
    shutil.rmtree(folder, ignore_errors=True)
    shutil.copytree(SCENARIOS / name, folder / "program")
    document, findings = _fix(folder / "program")
    if document is None:
        ended = "the program itself fails" if found.exit_code else "`fix` failed"
        result["not_run"] = f"{ended}: {_last_line(folder / STDERR)}"
    by_id = {item["id"]: item for item in document["findings"]} if document else {}
    for item in findings:
        if item["severity"] != "info":
            reason = (document or {}).get("notes") or [result["not_run"] or ""]
            result["findings"].append(_finding(item, by_id.get(item["id"]), reason))
    _check(result, by_id, (document or {}).get("environment", []), folder)
    return result


def _has_cuda() -> bool:
    code = "import sys, torch; sys.exit(not torch.cuda.is_available())"
    return subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def environment() -> dict[str, str]:
    """That of a user whose shell sets nothing of torch's."""
    kept = {k: v for k, v in os.environ.items() if not k.startswith(OF_THE_ENVIRONMENT)}
    return {**kept, "PYTHONDONTWRITEBYTECODE": "1"}


def _fix(folder: Path) -> tuple[dict[str, Any] | None, list[dict[str, Any]]]:
    """What `fix --json` prints, and the findings of the receipt."""
    done = subprocess.run(
        [sys.executable, "-m", "compilediag", "fix", "--yes", "--json", PROGRAM],
        cwd=folder,
        env=environment(),
        capture_output=True,
        text=True,
        timeout=LIMIT_S,
        check=False,
    )
    (folder.parent / STDERR).write_text(done.stderr, encoding="utf-8")
    document = json.loads(done.stdout) if done.stdout.startswith("{") else None
    receipts = list(folder.glob(".compilediag/2*/receipt.json"))
    if not receipts:
        return document, []
    return document, json.loads(receipts[0].read_text(encoding="utf-8"))["findings"]


def _last_line(path: Path) -> str:
    lines = path.read_text(encoding="utf-8").splitlines()
    return next((line for line in reversed(lines) if line.strip()), "no message")


def _finding(item: dict[str, Any], tries: dict[str, Any] | None, notes: list[str]) -> Finding:
    tried_changes: list[dict[str, Any]] = tries["tried"] if tries else []
    proof = next((each for each in tried_changes if each["proved"]), None)
    refused = [(each["change"], each["refused"]) for each in tried_changes if each["refused"]]
    if proof is not None or refused:
        why = None
    elif tries and tries["candidates"]:
        why = f"not tried: {notes[0]}"
    else:
        why = "no candidate" if tries else notes[0]
    return Finding(
        id=item["id"],
        rule=item["rule"],
        variable=item.get("variable"),
        title=item.get("title") or "",
        proof=(proof["kind"], proof["change"]) if proof else None,
        refused=refused,
        why=why,
        contradictions=[],
        unchecked=None,
    )


def _check(result: Result, by_id: dict[str, Any], printed: list[str], folder: Path) -> None:
    """Every proved change in a plain run of its own; changes of several findings once."""
    if not any(item["proof"] for item in result["findings"]):
        return
    before = counted(folder / "program", folder / "plain.json", (), environment())
    after: dict[str, Counted | CannotFollow] = {}
    for finding in result["findings"]:
        proof = next((x for x in by_id[finding["id"]]["tried"] if x["proved"]), None)
        if proof is None:
            continue
        proofs = [proof, *_needed(proof, by_id)]
        lines = "\n".join(sorted({each["change"] for each in proofs}))
        if lines not in after:
            after[lines] = _followed(proofs, printed, folder, len(after) + 1)
        seen = after[lines]
        if isinstance(seen, CannotFollow):
            finding["unchecked"] = str(seen)
        else:
            finding["contradictions"] = check(proof, before, seen)


def _needed(proof: dict[str, Any], by_id: dict[str, Any]) -> list[dict[str, Any]]:
    """The proofs of the findings whose changes this one needs."""
    of_others = [by_id[other]["tried"] for other in proof["together_with"]]
    return [each for tries in of_others for each in tries if each["proved"]]


def _each_once(proofs: list[dict[str, Any]], printed: list[str]) -> list[dict[str, Any]]:
    """The lines of the proofs. A value would replace another one of its variable: the lines with
    all of them are printed for what is proved together.

    Raises:
        CannotFollow: there are none, or one patch would not fit after another.
    """
    lines = {each["change"]: each for each in proofs}
    names = [line.partition("=")[0] for line in lines if line.startswith("export ")]
    if len({*names}) < len(names):
        if not printed:
            raise CannotFollow("two findings need values of one variable")
        lines = {line: each for line, each in lines.items() if not line.startswith("export ")}
        lines |= {line: {"change": line, "patch": None} for line in printed}
    if sum(bool(each["patch"]) for each in lines.values()) > 1:
        raise CannotFollow("two findings need patches")
    return list(lines.values())


def _followed(
    proofs: list[dict[str, Any]], printed: list[str], folder: Path, number: int
) -> Counted | CannotFollow:
    copy = folder / f"changed-{number}"
    shutil.copytree(folder / "program", copy, ignore=shutil.ignore_patterns(".compilediag"))
    try:
        exports = [line for each in _each_once(proofs, printed) for line in followed(each, copy)]
    except CannotFollow as why:
        return why
    return counted(copy, folder / f"changed-{number}.json", exports, environment())
