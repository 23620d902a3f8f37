"""Notes the bytecode that Dynamo makes in this process, and writes it as Python when it ends.

`supervised/depyf.py` puts this folder on PYTHONPATH of a second run of the target, which is not
measured. The hook returns None, so the process executes what it would execute without it.
"""

from __future__ import annotations

import atexit
import contextlib
import dis
import importlib
import io
import json
import os
import sys
from collections.abc import Callable
from types import CodeType
from typing import Any

Decompile = Callable[[CodeType], object]


class CodeNotes:
    """The transformed code of each compile, in a folder of this process."""

    def __init__(self, folder: str) -> None:
        self.folder = folder
        self.codes: list[tuple[str, CodeType, CodeType]] = []

    def hook(self, old_code: CodeType, new_code: CodeType) -> None:
        """Called by torch for each compile; None leaves the code as it is."""
        with contextlib.suppress(Exception):
            context: Any = sys.modules["torch._guards"].CompileContext
            self.codes.append((str(context.current_compile_id()), old_code, new_code))

    def install(self, convert_frame: Any) -> None:
        """Begins to note, in torch's module of that name."""
        convert_frame.register_bytecode_hook(self.hook)
        atexit.register(self.write)

    def write(self) -> None:
        """One line of JSON a compile; what was written is whole if the rest is not."""
        decompile = decompiler()
        with open(os.path.join(self.folder, f"{os.getpid()}.jsonl"), "x") as file:
            for compile_id, old_code, new_code in self.codes:
                note = {
                    "compile_id": compile_id,
                    "function": old_code.co_name,
                    "line": old_code.co_firstlineno,
                    "resumes": old_code.co_name.startswith("torch_dynamo_resume_in_"),
                    "before": source_of(old_code, decompile),
                    "after": source_of(new_code, decompile),
                    "guards": guards_of(old_code, new_code),
                }
                file.write(json.dumps(note) + "\n")
                file.flush()


def decompiler() -> Decompile | None:
    """depyf's function; None where it is not installed. It is imported when all is compiled."""
    with contextlib.suppress(Exception):
        module: Any = importlib.import_module("depyf")
        return module.decompile
    return None


def source_of(code: CodeType, decompile: Decompile | None) -> list[str]:
    """Text, and whether it is Python ("depyf") or bytecode ("dis")."""
    with contextlib.suppress(Exception):
        if decompile is not None:
            silent = io.StringIO()
            with contextlib.redirect_stdout(silent), contextlib.redirect_stderr(silent):
                return [str(decompile(code)), "depyf"]
    shown = io.StringIO()
    dis.dis(code, file=shown, depth=0)
    return [shown.getvalue(), "dis"]


def guards_of(old_code: CodeType, new_code: CodeType) -> str | None:
    """The guards of the cache entry that holds the code, as torch prints them."""
    with contextlib.suppress(Exception):
        native: Any = sys.modules["torch._C._dynamo.eval_frame"]
        for entry in native._debug_get_cache_entry_list(old_code):
            if entry.code is new_code:
                return str(entry.guard_manager)
    return None


def leave_path() -> None:
    """Removes this folder from `sys.path`, so that the next sitecustomize is found."""
    here = os.path.dirname(__file__)
    sys.path[:] = [entry for entry in sys.path if entry != here]
    sys.path_importer_cache.pop(here, None)


def start(folder: str) -> None:
    """Notes compiles into the folder, once torch is imported."""
    from compilediag_harness.base.post_import import PostImport

    PostImport().on_import("torch._dynamo.convert_frame", CodeNotes(folder).install)


leave_path()
del sys.modules[__name__]
try:
    # The sitecustomize that this one shadows: that of the harness, which is imported then; it ends
    # in an error, which `site` expects, where the user has none.
    __import__(__name__)
finally:
    with contextlib.suppress(Exception):
        start(os.environ["COMPILEDIAG_DEPYF_DIR"])
