"""Trials in processes of their own: other texts of source files, settings and stance, in children
too, and a plan that is damaged."""

import dataclasses
import hashlib
import json
import os
import subprocess
import sys
import textwrap
from pathlib import Path

from command_line import captured

from compilediag.certify.calls import read_calls
from compilediag.readers.journal import read_run
from compilediag.runs.supervised.child import make_child_environment
from compilediag.timeline.timeline import fold
from compilediag_harness.wire import (
    FaultOccurred,
    RecordingPlan,
    SettingChange,
    SourceChange,
    TrialPlan,
    describe_seed,
)

WHERE = """
    import inspect, sys
    def value():
        return 1  # the value
    def shown():
        names = sorted(name for name in globals() if name.startswith("__"))
        print(__name__, __file__, __package__, __spec__ and __spec__.name, names)
        print(sys.path[0], sys.argv[1:], type(__loader__).__name__)
        print("value", value(), inspect.getsource(value))
"""
MAIN = (
    WHERE
    + """
    import helper
    if __name__ == "__main__":
        shown()
        helper.shown()
        import multiprocessing
        with multiprocessing.get_context("spawn").Pool(1) as pool:
            print("value", pool.apply(value))
        raise ValueError(value())
"""
)


def written(folder: Path, name: str, text: str) -> Path:
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(textwrap.dedent(text))
    return path


def changed(path: Path) -> SourceChange:
    """Another text of a file: more lines, and another value."""
    text = path.read_text()
    digest = hashlib.sha256(text.encode()).hexdigest()
    return SourceChange(
        str(path), digest, "# one line more\n" + text.replace("return 1", "return 2")
    )


def child(folder: Path, plan: object, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Runs Python in `folder` as a trial, its run directory beside it; a plain run without plan."""
    base = {**os.environ, "PYTHONDONTWRITEBYTECODE": ""}
    env = base if plan is None else make_child_environment(base, str(run_dir_of(folder)))
    if plan is not None:
        path = folder.parent / "plan.json"
        path.write_text(json.dumps(plan))
        env["COMPILEDIAG_TRIAL"] = str(path)
    return captured(sys.executable, *arguments, cwd=folder, env=env, timeout=300)


def run_dir_of(folder: Path) -> Path:
    path = folder.parent / "run"
    path.mkdir(exist_ok=True)
    return path


def test_a_script_and_its_modules_run_from_another_text(tmp_path: Path) -> None:
    """Names, search path, arguments, exit code and spawned children are those of a plain run; the
    source text that is shown is the new one, also in the traceback that Python prints."""
    folder = tmp_path / "program"
    main, helper = written(folder, "main.py", MAIN), written(folder, "helper.py", WHERE)
    before = child(folder, None, "main.py", "--flag")  # leaves bytecode of the helper
    plan = TrialPlan(sources=(changed(main), changed(helper)))
    after = child(folder, dataclasses.asdict(plan), "main.py", "--flag")
    expected = before.stdout.replace("return 1", "return 2").replace("value 1", "value 2")
    assert after.stdout == expected != before.stdout
    assert after.returncode == before.returncode == 1
    raised = before.stderr.splitlines()[-1]
    assert after.stderr.splitlines()[-1] == raised.replace("1", "2")
    assert "raise ValueError(value())" in after.stderr
    assert child(folder, None, "main.py", "--flag").stdout == before.stdout


def test_a_module_runs_by_its_name_from_another_text(tmp_path: Path) -> None:
    folder = tmp_path / "program"
    module = written(folder, "package/part.py", WHERE + "\n    shown()\n    sys.exit(5)\n")
    before = child(folder, None, "-m", "package.part", "x")
    plan = TrialPlan(sources=(changed(module),))
    after = child(folder, dataclasses.asdict(plan), "-m", "package.part", "x")
    assert after.returncode == before.returncode == 5
    assert "return 2  # the value" in after.stdout
    assert after.stdout.splitlines()[:2] == before.stdout.splitlines()[:2]


TORCH = """
    import torch
    import helper

    def forward(x):
        return x * helper.VALUE

    class Data(torch.utils.data.Dataset):
        def __len__(self):
            return 2

        def __getitem__(self, index):
            import torch._dynamo
            return torch.tensor(torch._dynamo.config.recompile_limit)

    if __name__ == "__main__":
        run = torch.compile(forward, backend="eager")
        for size in (2, 3, 4):
            out = run(torch.ones(size))
        workers = list(torch.utils.data.DataLoader(Data(), num_workers=1))
        print(out.tolist(), [int(value) for value in workers], torch.rand(1).item())
"""


def test_settings_stance_and_texts_of_a_whole_program(tmp_path: Path) -> None:
    """A data loader's worker has them too. A text of a file that has changed since is not used, and
    what was applied is known outside."""
    folder = tmp_path / "program"
    main = written(folder, "main.py", TORCH)
    helper = written(folder, "helper.py", "VALUE = 3\n")
    plan = TrialPlan(
        settings=(SettingChange("torch._dynamo.config", "recompile_limit", 77),),
        sources=(
            SourceChange(str(helper), "0" * 64, "VALUE = 4\n"),
            dataclasses.replace(changed(main), text=main.read_text().replace("2, 3, 4", "5, 6")),
        ),
        stance="force_eager",
        recording=RecordingPlan(seed=11),
    )
    done = [child(folder, dataclasses.asdict(plan), "main.py") for _ in range(2)]
    assert done[0].stdout == done[1].stdout, "the seed makes both the same"
    assert done[0].stdout.startswith("[3.0, 3.0, 3.0, 3.0, 3.0, 3.0] [77, 77] 0.")
    timeline = fold([journal.events for journal in read_run(str(run_dir_of(folder)))])
    problems = {change.change: change.problem for change in timeline.trial_applied}
    assert problems.keys() == {*plan.labels, describe_seed(11)}
    assert {change: why for change, why in problems.items() if why} == {
        plan.sources[0].label: "the file is not the one that the text was made from"
    }
    assert timeline.counts.compiles == 0
    calls = read_calls(timeline)
    assert [[*map(len, calls[key].values())] for key in sorted(calls)] == [[2], [2]]
    assert len({state.process for state in timeline.random_states}) == 2, "not of workers"
    assert helper.read_text() == "VALUE = 3\n"


def test_a_damaged_plan_changes_nothing_and_is_a_fault(tmp_path: Path) -> None:
    folder = tmp_path / "program"
    helper = written(folder, "helper.py", "VALUE = 3\n")
    written(folder, "main.py", "import torch, helper; print(helper.VALUE)\n")
    plan = dataclasses.asdict(TrialPlan(sources=(changed(helper),)))
    plan["seed"] = "many"
    assert child(folder, plan, "main.py").stdout == "3\n"
    (journal,) = read_run(str(run_dir_of(folder)))
    faults = [event for event in journal.events if isinstance(event, FaultOccurred)]
    assert ["plan.seed is str" in fault.error for fault in faults] == [True]
