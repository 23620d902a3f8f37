"""Runs programs of `plain_programs.py`, and writes what each could see: as it is, and observed.

    python tests/support/plain_driver.py FOLDER [--variants=plain,observed] [NAME[+GROUP]...]
    compilediag run tests/support/plain_driver.py FOLDER --alone NAME

torch is imported once, with what the first compile would import, and every program has a process
of its own that is forked from there, once as it is and once observed: the two differ in nothing but
the observer. `NAME.VARIANT.json` in FOLDER holds the state of the process at its end, beside what
it has printed, and for a plain one what torch itself counts. With `--alone` the one program runs in
this process, as everybody's does.
"""

from __future__ import annotations

import argparse
import atexit
import contextlib
import dataclasses
import gc
import json
import logging
import os
import random
import sys
import threading
import traceback
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import process_state

PLAIN, OBSERVED = "plain", "observed"


def main(arguments: Sequence[str]) -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("folder", type=Path)
    parser.add_argument("--alone")
    parser.add_argument("--variants", default=f"{PLAIN},{OBSERVED}")
    parser.add_argument("names", nargs="*")
    options = parser.parse_args(arguments)
    folder = options.folder.resolve()
    # The first process that imports a module would write a file that the second one reads.
    sys.dont_write_bytecode = True
    sys.argv[1:] = []
    if options.alone:
        import plain_programs

        sys.exit(run(plain_programs, options.alone, folder / f"{options.alone}.json"))
    programs = load()
    names = options.names or list(programs.PROGRAMS)
    facts = {name: dataclasses.asdict(one) for name, one in programs.PROGRAMS.items()}
    (folder / "programs.json").write_text(json.dumps(facts, default=str), encoding="utf-8")
    for variant in options.variants.split(","):
        # What attaching loads is loaded once; what the observer loads later, it loads later here.
        watching = told_by_child(modules_of_attaching) if variant == OBSERVED else []
        in_child(lambda: run_each(programs, names, variant, folder, watching))  # noqa: B023


def run_each(
    programs: Any, names: Iterable[str], variant: str, folder: Path, loaded: Iterable[str]
) -> int:
    """The programs, one after the other: only plain ones are disturbed."""
    import_each(loaded)
    for name in names:
        if variant == PLAIN or "+" not in name:
            in_child(lambda: child(programs, name, variant, folder))  # noqa: B023
    return 0


# --- processes ------------------------------------------------------------------------------------


def load() -> Any:
    """torch, the programs, and every module that a first compile loads."""
    import plain_programs

    import_each(told_by_child(modules_of_compiles))
    gc.collect()
    gc.freeze()  # no process that is forked looks at all these objects, and thereby copies them
    return plain_programs


def import_each(names: Iterable[str]) -> None:
    for name in names:
        with contextlib.suppress(ImportError):
            __import__(name)


def modules_of_compiles() -> None:
    import plain_programs
    import torch._logging

    torch._logging.set_logs(all=logging.CRITICAL)
    with contextlib.redirect_stdout(None):
        for name in ("compiled_with_backends_of_aot", "compiled_update_with_breaks"):
            plain_programs.PROGRAMS[name].run()


def modules_of_attaching() -> None:
    from compilediag_harness import process

    process.start(os.devnull)


def told_by_child(work: Callable[[], object]) -> list[str]:
    """The modules that are loaded while a function runs, which is in a child."""
    read, write = os.pipe()

    def tell() -> int:
        before = set(sys.modules)
        work()
        with os.fdopen(write, "w", encoding="utf-8") as file:
            json.dump([name for name in sys.modules if name not in before], file)
        return 0

    in_child(tell, write)
    with os.fdopen(read, encoding="utf-8") as file:
        return json.load(file)


def in_child(work: Callable[[], int], *theirs: int) -> None:
    """Forks, does it, and ends as an interpreter does; closes file descriptors of the child's."""
    sys.stdout.flush()
    sys.stderr.flush()
    pid = os.fork()
    if pid:
        for descriptor in theirs:
            os.close(descriptor)
        os.waitpid(pid, 0)
        return
    code = 70
    try:
        code = work()
        threading._shutdown()
        atexit._run_exitfuncs()
    except BaseException:
        traceback.print_exc()
    with contextlib.suppress(Exception):
        sys.stdout.flush()
        sys.stderr.flush()
    os._exit(code)


def child(programs: Any, name: str, variant: str, folder: Path) -> int:
    """One program in this process, which is its own."""
    stem = folder / f"{name}.{variant}"
    for descriptor, suffix in ((1, "out"), (2, "err")):
        file = os.open(f"{stem}.{suffix}", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        os.dup2(file, descriptor)
        os.close(file)
    variables = programs.PROGRAMS[name.partition("+")[0]].variables
    if variables:
        import torch._logging

        os.environ.update(variables)
        torch._logging._internal._init_logs()  # what torch does when it is imported
    # One line calls the program whatever the variant is: torch notes who called.
    observer = counted_by_torch if variant == PLAIN else observed
    with observer(stem):
        return run(programs, name, Path(f"{stem}.json"))


@contextlib.contextmanager
def observed(stem: Path) -> Iterator[None]:
    """The process is attached to a run from now on."""
    from compilediag_harness import process

    run_dir = Path(f"{stem}.run")
    run_dir.mkdir()
    process.start(str(run_dir))
    yield


# --- programs -------------------------------------------------------------------------------------


def run(programs: Any, name: str, path: Path) -> int:
    """Runs a program, and writes the state of the process at its end."""
    import torch

    name, _, group = name.partition("+")
    gc.disable()  # what it collects while Dynamo is on is offered to Dynamo, whenever that is
    random.seed(0)  # as they begin, they differ between two plain runs
    torch.manual_seed(0)
    recorder = process_state.Recorder()
    recorder.start()
    if group:
        import disturbances

        for one in disturbances.GROUPS[f"{name}+{group}"]:
            one.plant()
    result, code = outcome(programs.PROGRAMS[name].run)
    state = {"result": result, "exit code": code, **process_state.look(), **recorder.state()}
    path.write_text(json.dumps(state), encoding="utf-8")
    return code


def outcome(work: Callable[[], Any]) -> tuple[Any, int]:
    """What a program returns, and its exit code; an error is told as Python tells it."""
    try:
        return process_state.plain(work()), 0
    except SystemExit as stop:
        return None, stop.code if isinstance(stop.code, int) else int(stop.code is not None)
    except BaseException as error:
        sys.last_type, sys.last_value, sys.last_traceback = type(error), error, error.__traceback__
        sys.excepthook(type(error), error, error.__traceback__)
        return None, 1


@contextlib.contextmanager
def counted_by_torch(stem: Path) -> Iterator[None]:
    """Writes what torch counts in the block: by its rows and its reports of graph breaks, which are
    taken from it whoever listens to its logs."""
    import oracle
    import torch._logging
    from torch._dynamo import convert_frame, utils

    texts: list[str] = []
    original = torch._logging.trace_structured

    def trace(kind: str, metadata_fn: Any = dict, **others: Any) -> Any:
        if kind == "artifact" and metadata_fn().get("name") == "dynamo_graph_break_reason":
            texts.append(others["payload_fn"]())
        return original(kind, metadata_fn, **others)

    for module in list(sys.modules.values()):
        if vars(module).get("trace_structured") is original:
            module.trace_structured = trace  # type: ignore[attr-defined]
    # torch reports a frame that it gives up only where this logger is enabled.
    convert_frame.graph_break_log = _Enabled(convert_frame.graph_break_log)
    resets: list[int] = []
    oracle._watch_resets(resets)(sys.modules["torch._dynamo"])
    try:
        yield
    finally:
        oracle._keep_rows(utils)
        counts = oracle.counts(oracle.read_rows(resets), texts)
        Path(f"{stem}.counts.json").write_text(json.dumps(counts), encoding="utf-8")


class _Enabled:
    """Stands for a logger: says that it is enabled, and logs what the logger would log."""

    def __init__(self, logger: logging.Logger) -> None:
        self.debug = logger.debug

    def isEnabledFor(self, level: int) -> bool:
        return True


if __name__ == "__main__":
    main(sys.argv[1:])
