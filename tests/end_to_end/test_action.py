"""The GitHub action: its steps are run with bash as the runner would, green, red and hostile."""

import json
import re
import shutil
from pathlib import Path

import jsonschema
import pytest
import yaml
from command_line import captured
from composite_action import Result, load, run_action
from shown_commands import environment, programs

pytestmark = pytest.mark.usefixtures("forked")

ROOT = Path(__file__).resolve().parents[2]
CI_PAGE = (ROOT / "docs" / "howto" / "ci.md").read_text(encoding="utf-8")
ACTION = ROOT / "action.yml"
DATA = ROOT / "tests" / "data"
COMMAND = re.compile(r"^::(error|notice) ([^:]*)::(.*)$", re.MULTILINE)
GUILTY = "        if len(self.table) < length:"
"""Where the frame reads what has changed since it was compiled."""

STEP = """
name: x
inputs: {{a: {{default: "1"}}}}
outputs: {{}}
runs: {{using: composite, steps: [{{name: s, shell: bash, if: "{condition}", run: "exit 7"}}]}}
"""


@pytest.fixture
def workspace(tmp_path: Path) -> Path:
    """A checkout with a recorded receipt, but no baseline."""
    folder = tmp_path / "workspace"
    (folder / ".git").mkdir(parents=True)
    shutil.copy(DATA / "receipt-example.json", folder / "receipt.json")
    return folder


@pytest.fixture
def trained(workspace: Path) -> Path:
    """A checkout with the good program of docs/howto/ci.md in a folder, and its baseline."""
    folder = workspace / "examples"
    folder.mkdir()
    (folder / "train.py").write_text(programs(CI_PAGE)[0], encoding="utf-8")
    for command in (["run", "--quiet", "--no-live", "train.py"], ["gate", "--update"]):
        captured("compilediag", *command, cwd=folder, env=environment(), check=True)
    shutil.rmtree(folder / ".compilediag")
    return workspace


def act(workspace: Path, **given: str) -> Result:
    """The action with its inputs (`_` for `-`), with the compilediag of the tests."""
    inputs = {"install": "false", **{key.replace("_", "-"): value for key, value in given.items()}}
    number = len(list(workspace.parent.glob("runner*")))
    temporary = workspace.parent / f"runner{number}"
    temporary.mkdir()
    return run_action(ACTION, inputs, workspace, temporary, environment())


def annotations(result: Result) -> list[tuple[str, str]]:
    return [(kind, given) for kind, given, _ in COMMAND.findall(result.log)]


def test_green_then_red(trained: Path) -> None:
    """A pull request that adds a recompile is red, with an annotation on the guilty line; before
    that it is green."""
    green = act(trained, run="'train.py'", working_directory="examples")
    assert (green.code, green.steps) == (0, ("Run", "Gate"))
    assert green.outputs["passed"] == "true"
    assert (trained / "examples" / green.outputs["receipt"]).is_file()
    assert [kind for kind, _ in annotations(green)] == ["notice"]
    assert green.summary.startswith("### ✅ gate passed")

    bad = programs(CI_PAGE)[1]
    (trained / "examples" / "train.py").write_text(bad, encoding="utf-8")
    red = act(trained, run="train.py", working_directory="examples", sarif_file="out/gate.sarif")
    line = bad.splitlines().index(GUILTY) + 1
    assert (red.code, red.outputs["passed"]) == (3, "false")
    told = annotations(red)
    assert [kind for kind, _ in told] == ["error"]
    assert told[0][1].startswith(f"file=examples/train.py,line={line},title=CD103 new cause")
    assert "✗ gate failed: 1 new cause" in red.log
    assert red.summary.startswith("### ❌ gate failed: 1 new cause")
    schema = json.loads((DATA / "sarif-2.1.0-rtm.5.json").read_bytes())
    sarif = json.loads((trained / "examples" / "out" / "gate.sarif").read_bytes())
    jsonschema.Draft4Validator(schema).validate(sarif)
    place = sarif["runs"][0]["results"][0]["locations"][0]["physicalLocation"]
    assert place["artifactLocation"]["uri"] == "examples/train.py"


def test_a_program_that_fails_is_red_before_the_gate(workspace: Path) -> None:
    """The exit code of the program is the step's, and nothing is judged."""
    result = act(workspace, run="-c 'raise SystemExit(5)'")
    assert (result.code, result.steps) == (5, ("Run",))
    assert result.outputs == {"passed": "", "receipt": ""}


def test_limits_judge_receipts_of_earlier_steps(workspace: Path) -> None:
    """Receipts can be named, one a line, and limits need no baseline; of other code than what is
    here only where that is wanted."""
    refused = act(workspace, receipts="receipt.json\n", fail_on="recompiles>1000")
    assert (refused.code, "the receipt is of other code" in refused.log) == (2, True)
    result = act(workspace, receipts="receipt.json\n", fail_on="recompiles>0", any_code="true")
    assert (result.code, result.steps) == (3, ("Gate",))
    assert result.outputs == {"passed": "false", "receipt": "receipt.json"}
    passed = act(workspace, receipts="receipt.json", fail_on="recompiles>1000", any_code="true")
    assert (passed.code, passed.outputs["passed"]) == (0, "true")


@pytest.mark.parametrize(
    "given",
    [
        {},
        {"receipts": "nowhere.json", "fail_on": "recompiles>0"},
        {"receipts": "receipt.json", "fail_on": "nonsense"},
        {"receipts": "receipt.json", "baseline": "nowhere.json"},
        {"receipts": "receipt.json"},
    ],
)
def test_nothing_judged_is_red(workspace: Path, given: dict[str, str]) -> None:
    """No receipt, no baseline, a limit that cannot be read: an error on the pull request."""
    result = act(workspace, **given)
    assert (result.code, result.outputs["passed"]) == (2, "false")
    assert annotations(result) == [("error", "title=compilediag gate")]
    assert "compilediag: " in result.log


@pytest.mark.parametrize("name", ["configuration", "lane"])
def test_both_names_of_the_configuration(workspace: Path, name: str) -> None:
    """The baseline has none of that name, and the log says so."""
    lock = {"schema": "compilediag.lock", "schema_version": "1.0", "lanes": {}}
    (workspace / "compilediag.lock.json").write_text(json.dumps(lock), encoding="utf-8")
    result = act(workspace, **{"receipts": "receipt.json", "any_code": "true", name: "other"})
    assert (result.code, "has no configuration 'other'" in result.log) == (2, True)


HOSTILE = ("$(touch hacked)", "`touch hacked`", '"; touch hacked; "', "a\nb=$(touch hacked)")


@pytest.mark.parametrize("text", HOSTILE)
@pytest.mark.parametrize(
    "name",
    [
        *("receipts", "baseline", "configuration", "lane", "fail_on", "strict_improvement"),
        *("sarif_file", "run", "base"),
    ],
)
def test_inputs_are_data(workspace: Path, name: str, text: str) -> None:
    """No input is run as a part of a script, nor adds an output of its own."""
    result = act(workspace, **{"receipts": "receipt.json", "fail_on": "recompiles>0", name: text})
    assert not list(workspace.rglob("hacked"))
    assert result.code != 0
    assert set(result.outputs) == {"passed", "receipt"}


def test_no_input_stands_in_a_script() -> None:
    """Expressions are evaluated in `env`, `if` and `working-directory` alone."""
    action = load(ACTION)
    for step in action["runs"]["steps"]:
        assert "${{" not in step["run"]
    text = ACTION.read_text(encoding="utf-8")
    assert {name for name in action["inputs"] if f"inputs.{name}" not in text} == set()


@pytest.mark.parametrize(
    ("given", "package"), [({}, str(ROOT)), ({"version": "0.1.0; x"}, "compilediag==0.1.0; x")]
)
def test_install(workspace: Path, given: dict[str, str], package: str) -> None:
    """The action's own compilediag, or the version that is asked for, as one argument of pip."""
    tools = workspace.parent / "bin"
    tools.mkdir()
    told = workspace.parent / "pip.txt"
    (tools / "python").write_text(f'#!/bin/sh\nprintf "%s\\n" "$@" > {told}\n', encoding="utf-8")
    (tools / "python").chmod(0o755)
    temporary = workspace.parent / "runner"
    temporary.mkdir()
    env = environment()
    env["PATH"] = f"{tools}:{env['PATH']}"
    more = {"receipts": "receipt.json", "fail-on": "recompiles>1000", "any-code": "true"}
    given = {**more, **given}
    result = run_action(ACTION, given, workspace, temporary, env)
    assert (result.code, result.steps) == (0, ("Install compilediag", "Gate"))
    assert told.read_text(encoding="utf-8").splitlines() == ["-m", "pip", "install", package]


@pytest.mark.parametrize(
    ("condition", "code"), [("inputs.a == '1'", 7), ("inputs.a != '1'", 0), ("inputs.a == ''", 0)]
)
def test_conditions_are_evaluated(tmp_path: Path, condition: str, code: int) -> None:
    """The runner of these tests skips what it must and runs what it must."""
    path = tmp_path / "action.yml"
    path.write_text(STEP.format(condition=condition), encoding="utf-8")
    assert run_action(path, {}, tmp_path, tmp_path, environment()).code == code


def test_expressions_that_are_not_known_fail(tmp_path: Path) -> None:
    """Nothing is skipped because it was not understood."""
    path = tmp_path / "action.yml"
    path.write_text(STEP.format(condition="always()"), encoding="utf-8")
    with pytest.raises(AssertionError, match="always"):
        run_action(path, {}, tmp_path, tmp_path, environment())
    assert yaml.safe_load(path.read_text(encoding="utf-8"))["name"] == "x"
