"""Starts Python programs without their imports of torch: each is forked from a process that has it.

    python fork_server.py SOCKET     serves until its stdin is closed
    a link to fork_client.py, ARGS   runs `python ARGS` as a fork of the server

torch, every module that a first compile loads, and the outside half of compilediag are imported
once. A program then is a fork: it gets the client's command line, directory, environment and
standard streams, is attached as an interpreter's start attaches it, and ends as an interpreter
ends. For tests of what a receipt says. Not for tests of attaching, of signals and of what an
interpreter has imported: those start Python itself, and so does the client where a fork would
differ (options of Python, variables that torch reads when it is imported).
"""

import atexit
import contextlib
import gc
import importlib
import io
import json
import os
import runpy
import signal
import socket
import struct
import subprocess
import sys
import threading
import traceback
import weakref
from collections.abc import Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

HERE = Path(__file__).resolve()
CLIENT = HERE.with_name("fork_client.py")
HEADER = struct.Struct("!I")
OUTSIDE = ("compilediag.cli", "compilediag.commands.run", "compilediag.runs.supervised")
"""What most commands import; nothing of the inside half, which attaching imports."""


class ForkServer:
    """A server, and the interpreter that runs programs in it."""

    def __init__(
        self, folder: Path, *, own_hash_seed: bool = True, loaded: Sequence[str] = ()
    ) -> None:
        """`own_hash_seed`: a program with a hash seed of its own is started as Python itself; else
        it has the server's, for programs to which it makes no difference. `loaded`: further
        modules that are imported once."""
        address = folder / "socket"
        self._process = subprocess.Popen(
            [sys.executable, str(HERE), str(address), *loaded],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env={
                name: value
                for name, value in os.environ.items()
                if not name.startswith(("TORCH", "COMPILEDIAG")) or name.endswith("VEC_ISA_OK")
            },
        )
        assert self._process.stdout.readline() == b"ready\n"
        self.python = folder / "python"
        head = f"#!{sys.executable} -IS\nADDRESS = {str(address)!r}\nPYTHON = {sys.executable!r}\n"
        client = CLIENT.read_text(encoding="utf-8")
        if not own_hash_seed:
            client = client.replace(', "PYTHONHASHSEED")', ")")
        self._write("python", head + client)
        for name, module in (("compilediag", "compilediag.__main__"), ("pytest", "pytest")):
            start = f"import sys\nfrom {module} import main\n\nsys.exit(main())\n"
            self._write(name, f"#!{self.python}\n{start}")

    def _write(self, name: str, text: str) -> None:
        """Makes a command of the folder, which can stand first in PATH."""
        path = self.python.with_name(name)
        path.write_text(text, encoding="utf-8")
        path.chmod(0o755)

    def close(self) -> None:
        """Ends the server, which has no program any more."""
        self._process.communicate()  # closes its stdin


# --- the server -----------------------------------------------------------------------------------


def serve(address: str, loaded: Sequence[str]) -> None:
    """Forks a process for each connection, until nobody needs one."""
    load(loaded)
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # nobody waits for those that wait
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(address)
        listening.listen(16)
        threading.Thread(target=_end_with_stdin, daemon=True).start()
        os.write(1, b"ready\n")
        while True:
            connection, _ = listening.accept()
            if os.fork() == 0:
                listening.close()
                _follow(connection)
            connection.close()


def _end_with_stdin() -> None:
    os.read(0, 1)
    os._exit(0)


def load(loaded: Sequence[str]) -> None:
    """torch, what a first compile loads, the outside half of compilediag, and further modules."""
    sys.path.insert(0, str(HERE.parent))
    import plain_driver

    plain_driver.load()
    for name in ("plain_driver", "plain_programs", "process_state", "oracle"):
        sys.modules.pop(name, None)
    for name in (*OUTSIDE, *loaded):
        importlib.import_module(name)
    sys.path.remove(str(HERE.parent))
    sys.dont_write_bytecode = True
    for finalizer in list(weakref.finalize._registry):  # type: ignore[attr-defined]
        finalizer.atexit = False  # hundreds, of torch's operators: 40 ms in each program
    gc.collect()
    gc.freeze()


def _follow(connection: socket.socket) -> None:
    """Starts the program of a connection, and tells the client how it ended."""
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    message, descriptors = _received(connection)
    pid = os.fork()
    if pid == 0:
        connection.close()
        _be(message, descriptors)
    for descriptor in descriptors:
        os.close(descriptor)
    connection.sendall(HEADER.pack(pid))
    _, status = os.waitpid(pid, 0)
    with contextlib.suppress(OSError):
        connection.sendall(struct.pack("!i", os.waitstatus_to_exitcode(status)))
    os._exit(0)


def _received(connection: socket.socket) -> tuple[dict[str, Any], list[int]]:
    head, descriptors, _, _ = socket.recv_fds(connection, HEADER.size, 3)
    (left,) = HEADER.unpack(head)
    parts: list[bytes] = []
    while left:
        part = connection.recv(min(left, 1 << 16))
        parts.append(part)
        left -= len(part)
    return json.loads(b"".join(parts)), list(descriptors)


# --- the program ----------------------------------------------------------------------------------


def _be(message: dict[str, Any], descriptors: Sequence[int]) -> None:
    """Becomes the program, and ends with it."""
    code = 70
    try:
        for target, descriptor in enumerate(descriptors):
            os.dup2(descriptor, target)
            os.close(descriptor)
        _set_up(message)
        code = _run(message["arguments"])
        threading._shutdown()  # type: ignore[attr-defined]
        atexit._run_exitfuncs()
    except BaseException:
        traceback.print_exc()
    with contextlib.suppress(Exception):
        sys.stdout.flush()
        sys.stderr.flush()
    os._exit(code)


def _set_up(message: dict[str, Any]) -> None:
    """What an interpreter has done before it looks at the program."""
    os.chdir(message["folder"])
    os.environ.clear()
    os.environ.update(message["environment"])
    sys.executable = message["python"]
    sys.orig_argv[:] = [message["python"], *message["arguments"]]
    encoding = os.environ.get("PYTHONIOENCODING", "utf-8")
    unbuffered = message["unbuffered"]
    sys.stdin = open(0, encoding=encoding, closefd=False)
    sys.stdout = _stream(1, encoding, "strict", unbuffered)
    sys.stderr = _stream(2, encoding, "backslashreplace", unbuffered)
    sys.__stdin__, sys.__stdout__, sys.__stderr__ = sys.stdin, sys.stdout, sys.stderr
    signal.signal(signal.SIGINT, signal.default_int_handler)
    added = [entry for entry in os.environ.get("PYTHONPATH", "").split(os.pathsep) if entry]
    sys.path[:] = [*added, *(entry for entry in sys.path if entry not in added)]
    if not _is_ours(message["arguments"]):
        for name in [name for name in sys.modules if name.partition(".")[0] == "compilediag"]:
            del sys.modules[name]
    _set_up_logs()
    # As `site` does, when an interpreter starts: this is where compilediag attaches.
    sys.modules.pop("sitecustomize", None)
    with contextlib.suppress(ImportError):
        importlib.import_module("sitecustomize")


def _set_up_logs() -> None:
    """As torch does when it is imported."""
    if not {"TORCH_LOGS", "TORCH_TRACE"}.isdisjoint(os.environ):
        logs: Any = sys.modules["torch._logging._internal"]
        logs.LOG_TRACE_HANDLER = None  # its folder is another
        logs._init_logs()


def _is_ours(arguments: Sequence[str]) -> bool:
    """The program is compilediag itself, which need not be imported again; a program that imports
    it, or has its pytest plugin, shall import it as everybody's does."""
    return arguments[:2] == ["-m", "compilediag"] or Path(arguments[0]).name == "compilediag"


def _stream(descriptor: int, encoding: str, errors: str, unbuffered: bool) -> io.TextIOWrapper:
    raw = open(descriptor, "wb", closefd=False)
    tty = os.isatty(descriptor)
    return io.TextIOWrapper(
        raw, encoding, errors, line_buffering=tty or descriptor == 2, write_through=unbuffered
    )


def _run(arguments: Sequence[str]) -> int:
    """Runs a file, `-m MODULE` or `-c CODE`; its exit code, an error told as Python tells it."""
    try:
        if arguments[0] == "-m":
            sys.argv[:] = ["-m", *arguments[2:]]
            sys.path.insert(0, os.getcwd())
            runpy._run_module_as_main(arguments[1])  # type: ignore[attr-defined]
            return 0
        if arguments[0] == "-c":
            sys.argv[:] = ["-c", *arguments[2:]]
            sys.path.insert(0, "")
            _execute(arguments[1], "<string>")
            return 0
        sys.argv[:] = list(arguments)
        path = os.path.abspath(arguments[0])  # also in tracebacks
        sys.path.insert(0, os.path.dirname(path))
        with io.open_code(path) as file:  # where a trial gives another text
            _execute(file.read(), path)
    except SystemExit as stop:
        if stop.code is None or isinstance(stop.code, int):
            return (stop.code or 0) & 0xFF
        print(stop.code, file=sys.stderr)
        return 1
    except BaseException as error:
        _tell(error)
        return 1
    return 0


def _execute(source: str | bytes, name: str) -> None:
    module = ModuleType("__main__")
    if name != "<string>":
        module.__file__ = name
    sys.modules["__main__"] = module
    exec(compile(source, name, "exec", dont_inherit=True), vars(module))


def _tell(error: BaseException) -> None:
    trace = error.__traceback__
    while trace is not None and trace.tb_frame.f_code.co_filename == __file__:
        trace = trace.tb_next
    error = error.with_traceback(trace)
    sys.last_type, sys.last_value, sys.last_traceback = type(error), error, trace
    sys.excepthook(type(error), error, trace)


for _function in (serve, _follow, _be, _run, _execute):
    # As `<module>`: none of them is a function of the program's above its calls.
    _function.__code__ = _function.__code__.replace(co_name="<start>")


if __name__ == "__main__":
    serve(sys.argv[1], sys.argv[2:])
