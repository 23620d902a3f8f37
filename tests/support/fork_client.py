# The interpreter of tests that read receipts: asks a `fork_server.py` to run `python ARGUMENTS`.
# `fork_server.ForkServer` writes it behind a head that says what runs it, ADDRESS and PYTHON.
import json
import os
import signal
import socket
import struct
import sys

HERE = os.path.abspath(__file__)
OWN = ("TORCHINDUCTOR_CACHE_DIR", "TRITON_CACHE_DIR", "TORCH_LOGS", "TORCH_TRACE")
OWN += ("TORCHINDUCTOR_VEC_ISA_OK",)  # the server has it
READ_AT_IMPORT = ("TORCH", "PYTORCH", "TRITON", "CUDA", "OMP_", "MKL_", "LD_")
"""Variables that torch reads when it is imported; all of a fork's have their value already."""
OPTIONS = ("PYTHONWARNINGS", "PYTHONOPTIMIZE", "PYTHONSTARTUP", "PYTHONHASHSEED")


def differs(arguments, environment):
    """A fork would not be what the interpreter is."""
    if not arguments or (arguments[0] not in ("-m", "-c") and arguments[0].startswith("-")):
        return True
    if any("multiprocessing" in word for word in arguments[:2]):
        return True  # of `spawn`: gets file descriptors by their numbers
    if os.path.basename(arguments[0]) == "oracle.py":
        return True  # looks at modules while they are imported
    return any(name in environment for name in OPTIONS) or any(
        name.startswith(READ_AT_IMPORT) and name not in OWN and name != "OMP_NUM_THREADS"
        for name in environment
    )


def main():
    arguments, environment = sys.argv[1:], dict(os.environ)
    words = [*arguments]
    unbuffered = words[:1] == ["-u"]
    if unbuffered:
        del words[0]
    if words and words[0].startswith("-m"):
        words[:1] = ["-m", *filter(None, [words[0][2:]])]
    if differs(words, environment):
        os.execv(PYTHON, [PYTHON, *arguments])  # noqa: F821
    message = json.dumps(
        {
            "arguments": words,
            "unbuffered": unbuffered or bool(environment.get("PYTHONUNBUFFERED")),
            "folder": os.getcwd(),
            "environment": environment,
            "python": HERE,
        }
    ).encode()
    with socket.socket(socket.AF_UNIX) as connection:
        connection.connect(ADDRESS)  # noqa: F821
        socket.send_fds(connection, [struct.pack("!I", len(message))], [0, 1, 2])
        connection.sendall(message)
        (pid,) = struct.unpack("!I", connection.recv(4))
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1):
            signal.signal(number, lambda received, _: os.kill(pid, received))
        (code,) = struct.unpack("!i", connection.recv(4, socket.MSG_WAITALL))
    if code < 0:
        signal.signal(-code, signal.SIG_DFL) if -code != signal.SIGKILL else None
        os.kill(os.getpid(), -code)
    os._exit(code)


main()
