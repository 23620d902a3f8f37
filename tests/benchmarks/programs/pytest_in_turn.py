"""Runs the same compiling tests with and without `--compilediag`: OUT BACKEND TESTS ROUNDS FOLDER.

One process, both sides in turn; what is measured is the CPU of the whole session and its children,
after a first round that pays for imports.
"""

import contextlib
import json
import os
import resource
import sys
import time
from pathlib import Path

import pytest
import torch

TESTS = """
import pytest
import torch

SOURCE = '''
def frame(x, flag):
    y = torch.sin(x) * NUMBER + x @ x
    y = torch.relu(y - NUMBER) if flag else torch.tanh(y + NUMBER)
    return (y.softmax(-1) * x).sum()
'''

@pytest.mark.parametrize("number", range(TESTS))
def test_frame(number):
    scope = {"torch": torch}
    exec(compile(SOURCE.replace("NUMBER", str(number)), f"<frame {number}>", "exec"), scope)
    compiled = torch.compile(scope["frame"], backend="BACKEND")
    x = torch.randn(16, 16, requires_grad=True)
    for flag in (True, False, True, False):
        compiled(x, flag).backward()
"""


def used() -> float:
    """CPU seconds of this process and its children so far."""
    children = resource.getrusage(resource.RUSAGE_CHILDREN)
    return time.process_time() + children.ru_utime + children.ru_stime


def session(file: str, *options: str) -> float:
    """CPU seconds of one session."""
    torch.compiler.reset()
    began = used()
    plain = ["-q", "-p", "no:cacheprovider", "--import-mode=importlib", "--rootdir", "."]
    with open(os.devnull, "w") as nowhere, contextlib.redirect_stdout(nowhere):
        code = pytest.main([*plain, file, *options])
    if code:
        raise RuntimeError(f"the session ended with {code}")
    return used() - began


def main(out: str, backend: str, tests: str, rounds: str, folder: str) -> None:
    torch.set_num_threads(1)
    os.chdir(folder)
    text = TESTS.replace("TESTS", tests).replace("BACKEND", backend)
    Path("test_frames.py").write_text(text)
    pairs = []
    for number in range(int(rounds) + 1):
        sides = {}
        for options in [(), ("--compilediag",)][:: -1 if number % 2 else 1]:
            sides[options] = session("test_frames.py", *options)
        pairs.append((sides[()], sides["--compilediag",]))
    with open(out, "w") as file:
        json.dump(pairs[1:], file)


if __name__ == "__main__":
    main(*sys.argv[1:])
