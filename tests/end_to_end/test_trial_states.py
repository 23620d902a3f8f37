"""Another state of a program laid over its files: new and absent files, tests of pytest, digests of
what became code, and watched lines."""

import dataclasses
import hashlib
import json
import os
import subprocess
import sys
import textwrap
from collections.abc import Mapping
from pathlib import Path

import pytest
from command_line import captured

from compilediag.readers.journal import read_run
from compilediag.runs.supervised.child import make_child_environment
from compilediag.timeline.timeline import Timeline, fold
from compilediag_harness.trials.sources import OTHER_FILE
from compilediag_harness.wire import RecordingPlan, SourceChange, TrialPlan, WatchedLines


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    path = tmp_path / "program"
    path.mkdir()
    return path


def write(folder: Path, files: Mapping[str, str]) -> None:
    for name, text in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(textwrap.dedent(text).encode())


def make_change(folder: Path, name: str, text: str) -> SourceChange:
    path = folder / name
    digest = hashlib.sha256(path.read_bytes()).hexdigest() if path.exists() else ""
    return SourceChange(str(path), digest, textwrap.dedent(text))


def run(
    folder: Path, plan: TrialPlan | None, *arguments: str, **variables: str
) -> subprocess.CompletedProcess[str]:
    """Runs Python in `folder`, as a trial with a plan."""
    base = {**os.environ, "PYTHONDONTWRITEBYTECODE": "", **variables}
    env = base if plan is None else make_child_environment(base, str(make_run_dir(folder)))
    if plan is not None:
        path = folder.parent / "plan.json"
        path.write_text(json.dumps(dataclasses.asdict(plan)))
        env["COMPILEDIAG_TRIAL"] = str(path)
    return captured(sys.executable, *arguments, cwd=folder, env=env, timeout=300)


def make_run_dir(folder: Path) -> Path:
    path = folder.parent / "run"
    path.mkdir(exist_ok=True)
    return path


def read_timeline(folder: Path) -> Timeline:
    return fold([journal.events for journal in read_run(str(make_run_dir(folder)))])


NEW = {
    "package/new.py": "import inspect\ndef read():\n    return inspect.getsource(read)\n",
    "package/sub/__init__.py": "from . import inner\nVALUE = inner.VALUE\n",
    "package/sub/inner.py": "VALUE = 'inner'\n",
    "space/deep/part.py": "VALUE = 'space'\n",
    "path/top.py": "",
    "wide.py": "# -*- coding: latin-1 -*-\nVALUE = '\u00e9'\nraise ValueError(VALUE)\n",
}
USES_NEW = """
    import importlib.util, sys, traceback
    import package.new, top
    from package import new, sub
    import space.deep.part
    print(package.new.__file__, new.__cached__, new.read(), sub.VALUE, sub.__path__)
    print(space.deep.part.VALUE, list(space.__path__), space.__file__)
    print(importlib.util.find_spec("package.sub.inner").origin)
    try:
        import wide
    except ValueError:
        traceback.print_exc(file=sys.stdout)
    if __name__ == "__main__":
        import multiprocessing
        with multiprocessing.get_context("spawn").Pool(1) as pool:
            print(pool.apply(new.read))
"""


def test_new_files_are_those_of_a_tree_that_has_them(folder: Path) -> None:
    """Modules, packages and namespace packages, in folders that are new too; nothing is written."""
    write(folder, {"main.py": USES_NEW, "package/__init__.py": "", "data.txt": ""})
    (folder / "path").mkdir()  # Python lists it before anything of ours is there
    changes = tuple(make_change(folder, name, text) for name, text in NEW.items())
    plan = TrialPlan(sources=changes)
    laid_over = run(folder, plan, "main.py", PYTHONPATH=str(folder / "path"))
    assert {path.name for path in folder.rglob("*") if "main" not in path.name} == {
        *("package", "path", "__init__.py", "data.txt", "__pycache__", "__init__.cpython-311.pyc")
    } or sys.version_info[:2] != (3, 11)
    for change in changes:
        path = Path(change.file)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(change.text, encoding="latin-1")
    plain = run(folder, None, "main.py", PYTHONPATH=str(folder / "path"))
    assert plain.returncode == laid_over.returncode == 0, laid_over.stderr
    assert laid_over.stdout == plain.stdout


USES_ABSENT = """
    import importlib.util
    for name in ("gone", "gone_folder", "gone_folder.deep.part", "package.gone", "package"):
        try:
            spec = importlib.util.find_spec(name)
            print(name, spec and (spec.origin, list(spec.submodule_search_locations or ())))
            print(__import__(name).__file__)
        except ModuleNotFoundError as error:
            print(repr(error), error.name)
    from package import stays
    print(stays.__file__)
    import runpy
    try:
        runpy.run_path("gone.py")
    except FileNotFoundError as error:
        print(error.errno)
"""


def test_absent_files_are_not_there(folder: Path) -> None:
    """A folder without any other file is not there either; without its `__init__` a package is a
    namespace package."""
    gone = {"gone.py": "1 / 0", "gone_folder/deep/part.py": "1 / 0"}
    gone |= {"package/gone.py": "1 / 0", "package/__init__.py": "1 / 0"}
    write(folder, {"main.py": USES_ABSENT, "package/stays.py": "", **gone})
    run(folder, None, "-c", "import package.stays")  # leaves bytecode
    plan = TrialPlan(absent=tuple(str(folder / name) for name in gone))
    laid_over = run(folder, plan, "main.py")
    for name in gone:
        (folder / name).unlink()
    (folder / "gone_folder/deep").rmdir()
    (folder / "gone_folder").rmdir()
    plain = run(folder, None, "main.py")
    assert plain.returncode == laid_over.returncode == 0, laid_over.stderr
    assert laid_over.stdout == plain.stdout


def test_an_absent_or_new_main_script(folder: Path) -> None:
    write(folder, {"main.py": "print(1)", "module.py": ""})
    absent = TrialPlan(absent=(str(folder / "main.py"),))
    laid_over = run(folder, absent, "main.py")
    assert (laid_over.returncode, laid_over.stdout) == (1, "")
    assert run(folder, absent, "-m", "main").returncode == 1
    new = make_change(folder, "new.py", "print(__file__, __name__)\n")
    done = run(folder, TrialPlan(sources=(new,)), "new.py")
    assert done.stdout == f"{folder / 'new.py'} __main__\n"


def test_a_text_with_a_byte_order_mark(folder: Path) -> None:
    write(folder, {"main.py": "import marked", "marked.py": "\ufeffprint(1)"})
    plan = TrialPlan(sources=(make_change(folder, "marked.py", "\ufeffprint(2)"),))
    assert run(folder, plan, "main.py").stdout == "2\n"


def test_a_new_file_that_is_there_is_not_replaced(folder: Path) -> None:
    write(
        folder, {"main.py": "import torch, helper\nprint(helper.VALUE)", "helper.py": "VALUE = 3"}
    )
    change = dataclasses.replace(make_change(folder, "helper.py", "VALUE = 4"), sha256="")
    assert run(folder, TrialPlan(sources=(change,)), "main.py").stdout == "3\n"
    (applied,) = read_timeline(folder).trial_applied
    assert (applied.change, applied.problem) == (change.label, OTHER_FILE)


def test_packages_that_are_reached_by_another_path(folder: Path) -> None:
    """By a link, by an entry of a `.pth` file and by the finder of an editable install."""
    write(
        folder,
        {
            "src/linked/part.py": "VALUE = 'old'",
            "src/gone.py": "VALUE = 'old'",
            "src/single.py": "VALUE = 'old'",
            "main.py": """
                import importlib.util, sys
                class Finder:  # as setuptools writes it
                    @staticmethod
                    def find_spec(name, path=None, target=None):
                        if name in ("single", "gone"):
                            path = f"{sys.path[0]}/src/{name}.py"
                            return importlib.util.spec_from_file_location(name, path)
                sys.meta_path.append(Finder)
                sys.path.append("site-packages")
                import single, linked.part, linked.new
                print(single.VALUE, linked.part.VALUE, linked.new.VALUE)
                try:
                    import gone
                except ModuleNotFoundError as error:
                    print(error)
            """,
        },
    )
    (folder / "site-packages").mkdir()
    (folder / "site-packages/linked").symlink_to(folder / "src/linked")
    names = ("src/linked/part.py", "src/linked/new.py", "src/single.py")
    changes = tuple(make_change(folder, name, "VALUE = 'new'") for name in names)
    plan = TrialPlan(sources=changes, absent=(str(folder / "src/gone.py"),))
    done = run(folder, plan, "main.py")
    assert done.stdout == "new new new\nNo module named 'gone'\n", done.stderr


TEST = "import helper\ndef test_value(ready):\n    assert helper.VALUE == ready == 1\n"
CONFTEST = "import pytest\n@pytest.fixture\ndef ready():\n    return 1\n"


def test_tests_and_conftest_are_laid_over(folder: Path) -> None:
    """pytest's own bytecode is neither used nor written; what its assertions say is the same."""
    write(folder, {"test_it.py": TEST, "conftest.py": CONFTEST, "helper.py": "VALUE = 1\n"})
    words = ("-m", "pytest", "-q", "-p", "no:randomly", "-p", "no:xdist", "-p", "no:compilediag")
    assert run(folder, None, *words).returncode == 0  # leaves bytecode
    names = ("test_it.py", "conftest.py", "helper.py")
    texts = {n: (folder / n).read_text().replace("1", "2").replace("== 2", "== 3") for n in names}
    before = {path: path.read_bytes() for path in folder.rglob("*.pyc")}
    plan = TrialPlan(sources=tuple(make_change(folder, *change) for change in texts.items()))
    laid_over = run(folder, plan, *words)
    assert laid_over.returncode == 1
    assert "assert 2 == 3" in laid_over.stdout, "the assertion is rewritten"
    assert {path: path.read_bytes() for path in folder.rglob("*.pyc")} == before
    write(folder, texts)
    plain = run(folder, None, *words)
    assert laid_over.stdout.rpartition(" in ")[0] == plain.stdout.rpartition(" in ")[0]


def test_a_conftest_that_raises_is_shown_without_our_frames(folder: Path) -> None:
    write(folder, {"test_it.py": TEST, "conftest.py": CONFTEST})
    plan = TrialPlan(sources=(make_change(folder, "conftest.py", "1 / 0\n"),))
    done = run(folder, plan, "-m", "pytest", "-q", "-p", "no:compilediag")
    assert "ZeroDivisionError" in done.stdout + done.stderr
    assert "compilediag_harness" not in done.stdout + done.stderr


RECORDING = RecordingPlan(seed=1)


def test_digests_of_what_became_code(folder: Path) -> None:
    """Of the main script, of modules from bytecode, of laid-over texts and of scripts that are run
    by their path: as they were when they were loaded. In spawned children too."""
    write(
        folder,
        {
            "main.py": """
                import torch, runpy, plain, changed
                if __name__ == "__main__":
                    runpy.run_path("script.py")
                    open("plain.py", "a").write("# later\\n")
                    import multiprocessing
                    child = multiprocessing.get_context("spawn").Process(target=changed.show)
                    child.start()
                    child.join()
            """,
            "plain.py": "VALUE = 1\n",
            "changed.py": "def show():\n    print(1)\n",
            "script.py": "import torch\n",
        },
    )
    run(folder, None, "-c", "import plain, changed")  # leaves bytecode
    change = make_change(folder, "changed.py", "def show():\n    print(2)\n")
    expected = {
        str(path): hashlib.sha256(path.read_bytes()).hexdigest() for path in folder.glob("*.py")
    }
    expected[change.file] = hashlib.sha256(change.text.encode()).hexdigest()
    done = run(folder, TrialPlan(sources=(change,), recording=RECORDING), "main.py")
    assert done.stdout == "2\n", done.stderr
    parent, child = [
        dict(zip(event.files, event.digests, strict=True)) for event in read_timeline(folder).loaded
    ]
    assert parent == expected
    later = hashlib.sha256((folder / "plain.py").read_bytes()).hexdigest()
    del expected[str(folder / "script.py")]
    assert child == {**expected, str(folder / "plain.py"): later}


PROGRAM = textwrap.dedent("""\
    import torch

    FLAG = True
    if not FLAG:
        print("never")

    def inlined(x):
        return x * 2

    def broken(x):
        torch._dynamo.graph_break()
        return x + 1

    @torch.compiler.disable
    def eager(x):
        return [value for value in x.tolist()]

    def forward(x, n):
        y = inlined(x)
        y = broken(y)
        if n > 2:
            y = y - n
        if n < 99:
            if n > 98:  # over the `else`: a jump without a line of its own
                y = y + 5
        else:
            y = y + 6
        eager(y)
        return y * 3

    def generate():
        yield 1
        yield 2

    def end(n):
        if n > 99:
            print("never")

    end(1)
    next(generate())
    run = torch.compile(forward, backend="eager")
    for n in range(4):
        run(torch.ones(n + 2), n)
    import threading
    def work():
        return 7
    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    from torch._dynamo.utils import counters
    print(dict(counters["stats"]), dict(counters["frames"]), sum(counters["graph_break"].values()))
""")
ALL_LINES = tuple(n for n, line in enumerate(PROGRAM.splitlines(), 1) if line)


def find_lines(*texts: str) -> set[int]:
    return {n for n, line in enumerate(PROGRAM.splitlines(), 1) if line.strip() in texts}


def test_watched_lines_change_nothing_and_are_seen(folder: Path) -> None:
    """Of the main script: of the module, a generator, a thread, an inlined function, and after a
    graph break."""
    write(folder, {"main.py": PROGRAM})
    ways = tuple(-n for n in sorted(find_lines("if n > 2:", "if n < 99:", "if n > 99:")))
    lines = (WatchedLines(str(folder / "main.py"), (*ALL_LINES, *ways)),)
    recording = dataclasses.replace(RECORDING, lines=lines)
    plain = run(folder, TrialPlan(recording=RECORDING), "main.py")
    assert not read_timeline(folder).lines_run
    watched = run(folder, TrialPlan(recording=recording), "main.py")
    assert watched.stdout == plain.stdout == run(folder, None, "main.py").stdout
    (seen,) = read_timeline(folder).lines_run
    assert seen.problem is None
    never = find_lines('print("never")', "y = y + 5", "else:", "y = y + 6", "yield 2")
    assert set(ALL_LINES) - set(seen.run) == never
    assert set(ways) - set(seen.run) == {ways[1]}, "the way past the second was not taken"
    assert set(seen.in_graph) >= find_lines("return x * 2", "y = inlined(x)", "y = y - n")
    assert set(seen.in_graph) >= find_lines("return x + 1", "return y * 3")
    outside = find_lines("return [value for value in x.tolist()]", "return 7", "import torch")
    assert not (outside | never) & set(seen.in_graph)


def test_the_way_past_an_if_is_seen_after_all_lines_were(folder: Path) -> None:
    main = """
        import torch
        def print_many(n):
            if n > 1:
                print("many")
            print("end")
        print_many(2)
        print_many(1)
    """
    write(folder, {"main.py": main})
    lines = (WatchedLines(str(folder / "main.py"), (-3, 4, 5)),)
    run(folder, TrialPlan(recording=dataclasses.replace(RECORDING, lines=lines)), "main.py")
    (seen,) = read_timeline(folder).lines_run
    assert seen.run == (-3, 4, 5)


def test_lines_that_dynamo_left_to_the_interpreter_are_seen(folder: Path) -> None:
    """The rest of a function behind a break that it cannot resume is a part of the code it made."""
    main = """
        import torch
        class Model(torch.nn.Module):
            def __init__(self):
                super().__init__()
                self.rnn = torch.nn.RNN(2, 2)
            def forward(self, x):
                x = x * 2
                x = x + 1
                y, h = self.rnn(x)
                for row in y:
                    z, h = self.rnn(row[None], h)
                if len(y) > 99:
                    z = z + 1
                return z
        torch.compile(Model(), backend="eager")(torch.ones(3, 1, 2))
    """
    write(folder, {"main.py": main})
    lines = (WatchedLines(str(folder / "main.py"), (8, 9, 12, 14, 15)),)
    plan = TrialPlan(recording=dataclasses.replace(RECORDING, lines=lines))
    assert run(folder, plan, "main.py").returncode == 0
    (seen,) = read_timeline(folder).lines_run
    assert seen.run == (8, 9, 12, 15)


def test_another_trace_function_is_a_problem(folder: Path) -> None:
    write(folder, {"main.py": "import torch, sys\nsys.settrace(lambda *_: None)\nprint(1)\n"})
    lines = (WatchedLines(str(folder / "main.py"), (1, 4)),)
    plan = TrialPlan(recording=dataclasses.replace(RECORDING, lines=lines))
    assert run(folder, plan, "main.py").stdout == "1\n"
    (seen,) = read_timeline(folder).lines_run
    assert seen.run == (1,)
    assert sys.version_info >= (3, 12) or "trace function" in str(seen.problem)


def test_nothing_is_followed_once_all_lines_were_seen(folder: Path) -> None:
    """Seen by the interpreter, and by Dynamo alone."""
    main = """
        import sys, torch
        @torch.compile(backend="eager")
        def double(x):
            return x * 2
        print(sys.gettrace() is not None)
        double(torch.ones(2))
        double(torch.ones(2))
        print(sys.gettrace())
    """
    write(folder, {"main.py": main, "helper.py": ""})
    lines = (WatchedLines(str(folder / "main.py"), (2, 5)),)
    plan = TrialPlan(recording=dataclasses.replace(RECORDING, lines=lines))
    expected = str(sys.version_info < (3, 12))
    assert run(folder, plan, "main.py").stdout == f"{expected}\nNone\n"
    (seen,) = read_timeline(folder).lines_run
    assert (seen.run, seen.in_graph, seen.problem) == ((2, 5), (5,), None)
    lines = (WatchedLines(str(folder / "main.py"), (2, 6)),)
    plan = TrialPlan(recording=dataclasses.replace(RECORDING, lines=lines))
    assert run(folder, plan, "main.py").stdout == "False\nNone\n"
