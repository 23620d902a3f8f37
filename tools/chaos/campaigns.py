"""The campaigns: each starts a target under `compilediag run` and disturbs it."""

from __future__ import annotations

import contextlib
import os
import random
import resource
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Generator, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import psutil
from checks import Trial, processes_of

TARGETS = Path(__file__).resolve().parent / "targets"
RECOMPILES = 3
"""Of `train.py`, by construction."""
LIMIT_S = 600.0
"""No run takes so long, on any machine."""
KILLED = 128 + signal.SIGKILL


@dataclass(frozen=True)
class Campaign:
    """One kind of disturbance, tried many times."""

    trials: int
    run: Callable[[Path, str], Trial]
    """Takes an empty folder and the seed of the trial."""
    alone: bool = False
    """Trials are not run at the same time: one loads every core, or mounts."""


@dataclass
class Started:
    """A run that goes on."""

    process: subprocess.Popen[bytes]
    run_dir: Path
    scratch: Path

    def target(self) -> psutil.Process | None:
        """The supervised process, once it is there; None when the run ended before."""
        root = psutil.Process(self.process.pid)
        while self.process.poll() is None:
            with contextlib.suppress(psutil.Error):
                for child in root.children():
                    if child.environ().get("COMPILEDIAG_RUN_DIR"):
                        return child
            time.sleep(0.005)
        return None

    def end(self) -> tuple[int, str]:
        """Exit code as a shell reports it, and what was written to stderr."""
        _, text = self.process.communicate(timeout=LIMIT_S)
        code = self.process.returncode
        return (128 - code if code < 0 else code), text.decode("utf-8", "replace")


def start(
    folder: Path,
    target: str,
    *words: str,
    variables: Mapping[str, str] | None = None,
    file_limit: int | None = None,
    prelude: str = "",
    run_dir: Path | None = None,
) -> Started:
    """Starts a target under `compilediag run`.

    Args:
        folder: where everything of the trial goes.
        target: name of a program in `targets/`.
        words: what stands before it, such as a launcher.
        variables: added to the environment.
        file_limit: bytes after which no file grows, for us and the target.
        prelude: code that runs in our process before we do.
        run_dir: folder of the run; one below `folder` by default.
    """
    run_dir = run_dir or folder / "run"
    scratch = folder / "tmp"
    scratch.mkdir()
    code = f"{prelude}\nfrom compilediag.cli import main\nraise SystemExit(main())"
    command = [sys.executable, "-c", code, "run", "--output", str(run_dir)]
    command += [*(words or (sys.executable,)), str(TARGETS / target)]

    def limit() -> None:
        if file_limit is not None:
            resource.setrlimit(resource.RLIMIT_FSIZE, (file_limit, resource.RLIM_INFINITY))

    process = subprocess.Popen(
        command,
        env={**os.environ, "TMPDIR": str(scratch), **(variables or {})},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        cwd=folder,
        preexec_fn=limit,  # noqa: PLW1509 - no other thread of ours holds a lock that matters
    )
    return Started(process, run_dir, scratch)


@cache
def undisturbed_s() -> float:
    """Wall seconds of a run that nothing disturbs: the span that moments are drawn from."""
    import tempfile

    with tempfile.TemporaryDirectory() as folder:
        begun = time.monotonic()
        start(Path(folder), "train.py").end()
        return time.monotonic() - begun


def _moment(seed: str) -> float:
    return random.Random(seed).uniform(0.0, undisturbed_s())  # noqa: S311 - no secret


def kill_target(folder: Path, seed: str) -> Trial:
    """SIGKILL of the target; it may have ended just before."""
    moment = _moment(seed)
    run = start(folder, "train.py")
    target = run.target()
    time.sleep(moment)
    if target is not None:
        with contextlib.suppress(psutil.Error):
            target.kill()
    code, text = run.end()
    return Trial(seed, run.run_dir, run.scratch, code, (KILLED, 0), text, RECOMPILES)


def kill_supervisor(folder: Path, seed: str) -> Trial:
    """SIGKILL of `compilediag run`: the target goes on to its end, `analyze` makes the receipt."""
    moment = _moment(seed)
    run = start(folder, "train.py")
    run.target()
    time.sleep(moment)
    run.process.kill()
    code, _ = run.end()
    while processes_of(run.run_dir):
        time.sleep(0.05)
    whole = (run.run_dir / "receipt.json").exists()
    found = () if whole else _recover(run, folder / "analyzed")
    kept = run.run_dir if whole else folder / "analyzed"
    shown = _compilediag("show", str(kept)).stdout
    return Trial(
        seed,
        run.run_dir,
        run.scratch,
        code,
        (KILLED, 0),
        shown,
        RECOMPILES,
        found=found,
        receipt_dir=kept,
    )


def _recover(run: Started, output: Path) -> tuple[str, ...]:
    """What `show` names, followed."""
    shown = _compilediag("show", str(run.run_dir))
    if f"compilediag analyze {run.run_dir}" not in shown.stdout + shown.stderr:
        return (f"`show` does not name `analyze`: {shown.stdout}{shown.stderr}",)
    _compilediag("analyze", str(run.run_dir), "--output", str(output))
    return ()


def _compilediag(*words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "compilediag", *words],
        capture_output=True,
        text=True,
        check=False,
        timeout=LIMIT_S,
    )


def disk_full(folder: Path, seed: str) -> Trial:
    """No file grows beyond a random byte: the write that crosses it is cut, those after it fail."""
    limit = random.Random(seed).randrange(1, 40_000)  # noqa: S311 - no secret
    run = start(folder, "train.py", file_limit=limit)
    code, text = run.end()
    return Trial(seed, run.run_dir, run.scratch, code, (0,), text, RECOMPILES, writable=False)


def disk_small(folder: Path, seed: str) -> Trial:
    """A file system of a few pages for the folder of the run: ENOSPC anywhere."""
    pages = random.Random(seed).randrange(1, 24)  # noqa: S311 - no secret
    with _small_disk(folder / "disk", pages * 4096) as disk:
        run = start(folder, "train.py", run_dir=disk / "run")
        code, text = run.end()
        kept = folder / "kept"
        if run.run_dir.exists():
            shutil.copytree(run.run_dir, kept)
    kept.mkdir(exist_ok=True)
    codes = (
        (0, 2) if not any(kept.iterdir()) else (0,)
    )  # refused before it started, or as without us
    return Trial(seed, kept, run.scratch, code, codes, text, RECOMPILES, writable=False)


@contextlib.contextmanager
def _small_disk(path: Path, size: int) -> Generator[Path]:
    path.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", str(path)]
    subprocess.run(mount, check=True, capture_output=True)
    try:
        yield path
    finally:
        subprocess.run(["umount", str(path)], check=True)


def folder_removed(folder: Path, seed: str) -> Trial:
    """The run's folder is deleted while it runs; in every second trial a file takes its place."""
    moment = _moment(seed)
    run = start(folder, "train.py")
    if run.target() is not None:
        time.sleep(moment)
        shutil.rmtree(run.run_dir, ignore_errors=True)
        if int(seed.rpartition("-")[2]) % 2:
            with contextlib.suppress(OSError):
                run.run_dir.write_text("something else")
    code, text = run.end()
    return Trial(seed, run.run_dir, run.scratch, code, (0,), text, RECOMPILES, writable=False)


CLOCK = """
import random, time
_jumps, _now = random.Random(1), time.time
time.time = lambda: _now() + _jumps.uniform(-86400, 86400)
time.time_ns = lambda: int(time.time() * 1e9)
"""


def clock_jumps(folder: Path, seed: str) -> Trial:
    """The wall clock jumps by up to a day at every reading, for the target and for us."""
    run = start(folder, "clock.py", prelude=CLOCK)
    code, text = run.end()
    return Trial(seed, run.run_dir, run.scratch, code, (0,), text, RECOMPILES)


def undisturbed(target: str) -> Callable[[Path, str], Trial]:
    """The target is the disturbance."""

    def campaign(folder: Path, seed: str) -> Trial:
        run = start(folder, target)
        code, text = run.end()
        return Trial(seed, run.run_dir, run.scratch, code, (0,), text)

    return campaign


def rank_killed(folder: Path, seed: str) -> Trial:
    """Eight ranks, one of which kills itself at a random call; the launcher ends with 1."""
    drawn = random.Random(seed)  # noqa: S311 - no secret
    variables = {
        "CHAOS_RANK": str(drawn.randrange(8)),
        "CHAOS_CALL": str(drawn.randrange(4)),
        "OMP_NUM_THREADS": "1",
    }
    launcher = (
        str(Path(sys.executable).with_name("torchrun")),
        "--standalone",
        "--nproc-per-node",
        "8",
    )
    run = start(folder, "ranks.py", *launcher, variables=variables)
    code, text = run.end()
    return Trial(seed, run.run_dir, run.scratch, code, (1,), text)


CAMPAIGNS = {
    "kill-target": Campaign(200, kill_target),
    "kill-supervisor": Campaign(200, kill_supervisor),
    "disk-full": Campaign(50, disk_full),
    "disk-small": Campaign(20, disk_small),
    "folder-removed": Campaign(20, folder_removed),
    "clock-jumps": Campaign(5, clock_jumps),
    "threads": Campaign(5, undisturbed("threads.py")),
    "forks": Campaign(5, undisturbed("forks.py")),
    "spawns": Campaign(5, undisturbed("spawns.py")),
    "ranks": Campaign(3, rank_killed, alone=True),
}
