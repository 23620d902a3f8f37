"""Runs a composite GitHub action as the runner does: expressions, environment, bash, files.

Only the expressions that action.yml uses are known; any other one fails the test that meets it.
"""

import re
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

EXPRESSION = re.compile(r"\$\{\{\s*(.*?)\s*\}\}")
CONDITION = re.compile(r"(\S+) (==|!=) '([^']*)'\Z")
BASH = ("bash", "--noprofile", "--norc", "-eo", "pipefail")


@dataclass(frozen=True)
class Result:
    """What a caller of the action sees."""

    code: int
    """Of the last step that ran: the first that failed, or 0."""
    steps: tuple[str, ...]
    """Names of the steps that ran."""
    log: str
    outputs: dict[str, str]
    summary: str


def load(path: Path) -> dict[str, Any]:
    return yaml.safe_load(path.read_text(encoding="utf-8"))


def run_action(
    path: Path, given: dict[str, str], workspace: Path, temporary: Path, environment: dict[str, str]
) -> Result:
    """Runs the steps in a workspace until one fails."""
    action = load(path)
    unknown = set(given) - set(action["inputs"])
    assert not unknown, f"no such input: {unknown}"
    known = {f"inputs.{name}": str(item["default"]) for name, item in action["inputs"].items()}
    known |= {f"inputs.{name}": value for name, value in given.items()}
    known["github.action_path"] = str(path.parent)
    log, ran, code, summary = "", [], 0, ""
    for number, step in enumerate(action["runs"]["steps"]):
        if not _holds(step.get("if"), known):
            continue
        assert step["shell"] == "bash"
        folder = temporary / str(number)
        folder.mkdir()
        (folder / "script.sh").write_text(step["run"], encoding="utf-8")
        files = {name: folder / name for name in ("GITHUB_OUTPUT", "GITHUB_STEP_SUMMARY")}
        for file in files.values():
            file.touch()
        env = {key: _evaluated(value, known) for key, value in step.get("env", {}).items()}
        done = subprocess.run(
            [*BASH, str(folder / "script.sh")],
            cwd=workspace / _evaluated(step.get("working-directory", "."), known),
            env={
                **environment,
                "GITHUB_ACTIONS": "true",
                "GITHUB_WORKSPACE": str(workspace),
                "RUNNER_TEMP": str(folder),
                **{name: str(file) for name, file in files.items()},
                **env,
            },
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            encoding="utf-8",
            check=False,
        )
        ran.append(step["name"])
        log += done.stdout
        summary += files["GITHUB_STEP_SUMMARY"].read_text(encoding="utf-8")
        for line in files["GITHUB_OUTPUT"].read_text(encoding="utf-8").splitlines():
            name, _, value = line.partition("=")
            known[f"steps.{step['id']}.outputs.{name}"] = value
        code = done.returncode
        if code:
            break
    outputs = {name: _output(item["value"], known) for name, item in action["outputs"].items()}
    return Result(code, tuple(ran), log, outputs, summary)


def _evaluated(text: str, known: dict[str, str]) -> str:
    return EXPRESSION.sub(lambda match: known[match[1]], text)


def _output(text: str, known: dict[str, str]) -> str:
    """As `_evaluated`; what a step that did not run would have set is empty."""
    return EXPRESSION.sub(lambda match: known.get(match[1], ""), text)


def _holds(condition: str | None, known: dict[str, str]) -> bool:
    if condition is None:
        return True
    match = CONDITION.match(condition)
    assert match is not None, f"not understood: {condition}"
    return (known[match[1]] == match[3]) is (match[2] == "==")
