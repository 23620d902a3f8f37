"""Life of an attached process from its start to its end: journal, `import torch`, exit.

Loaded by `bootstrap/sitecustomize.py` in every Python child of a run, most of which never import
torch: until then nothing is imported that the interpreter has not loaded already, which is why
the two records written here are encoded by hand.

Invariant: nothing here raises into the program, prints, or replaces something it can see. The
exception that ends the process is read from `sys.last_value`, where Python leaves it for
debuggers, so `sys.excepthook` stays the program's own.
"""

from __future__ import annotations

import atexit
import os
import sys
import time
from _json import encode_basestring_ascii, make_encoder  # `json` would bring `re` along

from compilediag_harness.base.journal import Journal

TYPE_CHECKING = False  # `typing` costs milliseconds in children without torch
if TYPE_CHECKING:
    import signal as _signal
    from collections.abc import Sequence
    from importlib.machinery import ModuleSpec
    from types import ModuleType
    from typing import Any

    from compilediag_harness.base.session import Session
    from compilediag_harness.wire import Event
else:
    import _signal  # `signal` itself would bring `enum` along

WIRE_VERSION = 1
"""`wire.WIRE_VERSION`, which is not imported before torch is; a test holds them equal."""

_SECRET_HINTS = ("key", "token", "secret", "pass", "pw", "cred", "auth", "cookie", "dsn", "bearer")
"""What names of secrets contain."""

_TO_SPACES = {code: " " for code in range(128) if not chr(code).isalnum() and chr(code) not in "_-"}
"""Characters between the runs of a word, one of which a token would be."""

FAILURE_LIMIT = 8192
"""Longest account of the exception that ends the process, in characters."""

_FAILURE_READ = 1 << 20
"""Of a longer traceback only the end is looked at."""


class Attached:
    """This process, attached to the run whose directory is `run_dir`."""

    def __init__(self, run_dir: str) -> None:
        self.origin = time.monotonic()
        self.run_dir = run_dir
        self.session: Session | None = None
        """Made when torch is imported."""
        self.journal = Journal(run_dir, self._encode_opening)
        self._pid = os.getpid()
        self._failure: str | None = None
        self._trial: Any = None
        self._trial_fault: Exception | None = None

    def _encode_opening(self) -> bytes:
        forked = hasattr(self, "_pid")
        t = time.monotonic() - self.origin if forked else 0.0
        return _encode_line("ProcessStarted", t=t, **read_identity())

    def begin_trial(self, path: str) -> None:
        """Make this process part of the trial whose plan is in a file; a plan that cannot be read
        changes nothing."""
        try:
            from compilediag_harness.trials import plan, trial

            self._trial = trial.ActiveTrial(plan.read_plan(path))
        except Exception as error:
            self._trial_fault = error

    def activate(self) -> None:
        """Install the collectors, when torch is about to be imported."""
        if self.session is not None:
            return
        from compilediag_harness.base.session import Session

        self.session = session = Session(self._write_event, self.origin)
        session.text_log = os.path.join(self.run_dir, "torch_logs.txt")
        session.records_left_out = self.journal.left_out
        session.trace_folder = os.path.join(self.run_dir, "artifacts", "torch_trace")
        session.trial = self._trial
        if self._trial_fault is not None:
            session.record_fault("trial: the plan", self._trial_fault)
        try:
            self._follow_forks()
            self._finish_with_torch()
            from compilediag_harness import attach

            attach.install(session)
            if session.options.experiments_s is not None:
                from compilediag_harness import extension_points

                install = extension_points.load(extension_points.EXPERIMENTS)
                if install is not None:
                    install(self.run_dir, session.options.experiments_s)
        except Exception as error:
            session.record_fault("attach.install", error)

    def _write_event(self, event: Event) -> None:
        session, journal = self.session, self.journal
        if not journal.write(event) and session is not None:
            session.records_dropped += 1
        if journal.left_out and not journal.limit_noted and session is not None:
            journal.limit_noted = True
            from compilediag_harness.wire import JournalLimited

            session.emit(JournalLimited(session.now(), journal.limit_bytes))

    def _follow_forks(self) -> None:
        """Follow forks of `multiprocessing`: they end by `os._exit`, after its own finalizers."""
        # Invariant: not imported before torch does. It names the program's module once more, and
        # pickle looks names up in the order of the modules: the keys of compile caches would not be
        # those of a plain run.
        from compilediag_harness.base.post_import import PostImport

        def follow(util: Any) -> None:
            def register_finish(attached: Attached) -> None:
                util.Finalize(None, attached.finish, exitpriority=-100)

            util.register_after_fork(self, register_finish)

        PostImport().run_after_import("multiprocessing.util", follow)

    def _finish_with_torch(self) -> None:
        """Let a trial that makes calls at the end make them while torch can: operators are taken
        away by finalizers of torch, which run at exit, before what was registered first."""
        if getattr(self._trial, "makes_calls_at_end", False):
            from compilediag_harness.base.post_import import PostImport

            def register_again(_torch: Any) -> None:
                atexit.unregister(self.finish)
                atexit.register(self.finish)

            PostImport().run_after_import("torch", register_again)

    def finish(self) -> None:
        """Write the last record; called by `atexit`, so not after `os._exit` or a signal.

        A forked child that wrote nothing, such as a data loader's, leaves no file.
        """
        if self.journal.silent:
            return
        # Python sets it before `sys.excepthook` (PyErr_PrintEx in pythonrun.c), not for SystemExit.
        error: Any = getattr(sys, "last_exc", None) or getattr(sys, "last_value", None)
        self._failure = _format_failure(error) if isinstance(error, BaseException) else None
        # One more Ctrl-C while the process ends must not print a traceback of ours.
        handler = _signal.getsignal(_signal.SIGINT)
        if handler is None:  # not installed from Python: not ours to touch
            self._write_end()
        else:
            _signal.signal(_signal.SIGINT, _signal.SIG_IGN)
            try:
                self._write_end()
            finally:
                _signal.signal(_signal.SIGINT, handler)
        if isinstance(error, KeyboardInterrupt):
            # Lets Python end by SIGINT after Ctrl-C, as it would have without our work here: it
            # does so where the last code run from text ended in KeyboardInterrupt
            # (run_eval_code_obj in pythonrun.c), and modules imported since, such as those with
            # named tuples, run code from text.
            try:  # noqa: SIM105 - contextlib is such a module
                exec("raise KeyboardInterrupt")  # noqa: S102
            except KeyboardInterrupt:
                pass

    def _write_end(self) -> None:
        if self.session is None:
            self._write_end_without_torch()
            return
        self.session.failure = self._failure
        try:
            from compilediag_harness import attach

            attach.finish(self.session)
        except Exception as error:
            self.session.record_fault("attach.finish", error)
            self._write_end_without_torch()

    def _write_end_without_torch(self) -> None:
        ended = _encode_line(
            "ProcessEnded",
            t=time.monotonic() - self.origin,
            counters={},
            collector_s=0.0,
            records_dropped=self.journal.dropped,
            host_peak_bytes=None,
            failure=self._failure,
            records_left_out={},
        )
        self.journal.append("ProcessEnded", ended)


class TorchFinder:
    """Meta-path finder that fires once, when torch is found, and then is gone."""

    def __init__(self, attached: Attached) -> None:
        self._attached = attached
        self._searching = False

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """None for every module but torch."""
        if name != "torch" or self._searching:
            return None
        self._searching = True
        try:
            if self._search(path, target) is None:
                return None  # torch is absent so far: the program may add it to its path
            if self in sys.meta_path:
                sys.meta_path.remove(self)
            self._attached.activate()
            # Searched again, because installing may have put finders in front.
            return self._search(path, target)
        finally:
            self._searching = False

    def _search(self, path: Sequence[str] | None, target: ModuleType | None) -> ModuleSpec | None:
        for finder in list(sys.meta_path):
            find = getattr(finder, "find_spec", None)
            if finder is self or find is None:
                continue
            spec = find("torch", path, target)
            if spec is not None:
                return spec
        return None


current: Attached | None = None
"""The attached process, once `start` was called."""


def start(run_dir: str) -> Attached:
    """Attach this process to a run; a second call changes nothing."""
    global current
    if current is not None:
        return current
    current = attached = Attached(run_dir)
    if plan := os.environ.get("COMPILEDIAG_TRIAL"):
        attached.begin_trial(plan)
    atexit.register(attached.finish)
    if "torch" in sys.modules:
        attached.activate()
    else:
        sys.meta_path.insert(0, TorchFinder(attached))
    return attached


def read_identity() -> dict[str, object]:
    """Read the fields of `ProcessStarted` that describe this process."""
    now = time.time()
    stamp = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(now))
    try:
        folder = os.getcwd()
    except OSError:
        folder = ""
    return {
        "wire_version": WIRE_VERSION,
        "pid": os.getpid(),
        "parent_pid": os.getppid(),
        "rank": _parse_small_int(os.environ.get("RANK")),
        "world_size": _parse_small_int(os.environ.get("WORLD_SIZE")),
        "argv": [word if len(word) <= 4096 else word[:4096] + "…" for word in _read_argv()],
        "executable": sys.executable or "",
        "cwd": folder,
        "started_utc": f"{stamp}.{int(now % 1 * 1e6):06d}Z",
        "python": sys.version.split()[0],
    }


def _read_argv() -> list[str]:
    """Read the command line without secrets."""
    words = sys.orig_argv[:256]
    if _is_plain(words):
        return words
    try:
        from compilediag_harness.redaction import in_process

        return list(in_process.get_redactor().redact_argv(words))
    except Exception:  # never a fault of ours in the program, nor a secret in its journal
        return words[:1]


def _is_plain(words: list[str]) -> bool:
    """True if a command line is words and numbers that hold no secret for certain, as is so in most
    children: then what finds secrets, which takes `re`, is not loaded for it."""
    secrets = [
        value
        for name, value in os.environ.items()
        if len(value) > 3
        and value[0] != "/"
        and any(hint in name.lower() for hint in _SECRET_HINTS)
    ]
    for word in words:
        lower = word.lower()
        if word in ("-p", "--pat") or "://" in word or not word.isascii():
            return False
        if any(hint in lower for hint in _SECRET_HINTS) or any(value in word for value in secrets):
            return False
        for run in word.translate(_TO_SPACES).split():
            is_name = run.replace("_", "").replace("-", "").isalpha() and run.islower()
            if len(run) >= (30 if is_name else 10) or (is_name and run.startswith("hf_")):
                return False
    return True


def _parse_small_int(text: str | None) -> int | None:
    if text is None or not text.isdecimal() or len(text) > 9:
        return None
    return int(text)


def _format_failure(error: BaseException) -> str:
    """Format one line that names the exception, a blank line, and its traceback (the end of it)."""
    try:
        import traceback

        first = "".join(traceback.format_exception_only(type(error), error)).strip()
        whole = "".join(traceback.format_exception(type(error), error, error.__traceback__))
        # Whole, before it is cut: half a secret is not recognised.
        from compilediag_harness.redaction import in_process

        first, whole = in_process.redact_text(first), in_process.redact_text(whole[-_FAILURE_READ:])
    except Exception:
        return type(error).__name__
    named = " ".join(first.split())[:1000]
    return f"{named}\n\n{whole[-(FAILURE_LIMIT - len(named) - 2) :]}"


def _encode_line(kind: str, **fields: object) -> bytes:
    """Encode one record as `wire.encode` writes it."""
    encode = make_encoder(None, str, encode_basestring_ascii, None, ":", ",", False, False, True)
    return "".join(encode({"k": kind, **fields}, 0)).encode("ascii")
