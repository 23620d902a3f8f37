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
import os
import re
import sys
from collections.abc import Callable
from types import CodeType
from typing import Any

Decompile = Callable[[CodeType], object]

CALLED = (
    "# `__compiled_fn_...` are the captured graphs, `__resume_at_...` what goes on behind a graph\n"
    "# break.\n"
)
AFTER_BREAK = (
    "# This frame is what runs after a graph break: torch made a function of the rest of the\n"
    "# interrupted one, and compiled it by itself.\n"
)


class CodeNotes:
    """The transformed code of each compile, in a folder of this process."""

    def __init__(self, folder: str) -> None:
        self.folder = folder
        self.codes: list[tuple[str, CodeType, CodeType]] = []

    def record_code(self, old_code: CodeType, new_code: CodeType) -> None:
        """Record the code of a compile; torch calls it, and None leaves the code as it is."""
        with contextlib.suppress(Exception):
            context: Any = sys.modules["torch._guards"].CompileContext
            self.codes.append((str(context.current_compile_id()), old_code, new_code))

    def install(self, convert_frame: Any) -> None:
        """Begin to record, in torch's module `convert_frame`."""
        convert_frame.register_bytecode_hook(self.record_code)
        atexit.register(self.write)

    def write(self) -> None:
        """Write one file a compile; of ids that repeat the first stays."""
        decompile: Decompile | None = None
        with contextlib.suppress(Exception):  # where it is not installed
            decompile = importlib.import_module("depyf").decompile
        for compile_id, old_code, new_code in self.codes:
            word = re.sub(r"\W+", "_", old_code.co_name, flags=re.ASCII)[:60]
            identity = compile_id.replace("/", "-").replace("!", "a")
            path = os.path.join(self.folder, f"{identity}-{word}.py")
            if not os.path.exists(path):
                part = f"{path}.{os.getpid()}"
                with open(part, "w", encoding="utf-8", errors="backslashreplace") as file:
                    file.write(render_compile(compile_id, old_code, new_code, decompile))
                os.rename(part, path)  # whole, whatever becomes of the others


def render_compile(
    compile_id: str, old_code: CodeType, new_code: CodeType, decompile: Decompile | None
) -> str:
    """Render the file of one compile: the compiled code, the original code, and the guards."""
    name = " ".join(old_code.co_name.split())[:120]
    frame = f"{name}, line {old_code.co_firstlineno}"
    parts = [f"# Compile {compile_id} of {frame}: what torch.compile made of it.\n{CALLED}"]
    if name.startswith("torch_dynamo_resume_in_"):
        parts.append(AFTER_BREAK)
    parts.append(render_code("what runs", new_code, decompile))
    parts.append(render_code("what it was made of", old_code, decompile))
    guards = read_guards(old_code, new_code)
    if guards is not None:
        parts.append("# --- the guards of this variant\n" + format_as_comments(guards))
    return "\n".join(parts)


def render_code(name: str, code: CodeType, decompile: Decompile | None) -> str:
    """Render the code as Python; as bytecode where there is no depyf, or it fails."""
    silent, shown = io.StringIO(), io.StringIO()
    with (
        contextlib.suppress(Exception),
        contextlib.redirect_stdout(silent),
        contextlib.redirect_stderr(silent),
    ):
        if decompile is not None:
            return f"# --- {name}, decompiled by depyf\n{decompile(code)}"
    dis.dis(code, file=shown, depth=0)
    bytecode = format_as_comments(shown.getvalue())
    return f"# --- {name}, as bytecode: depyf could not decompile it\n{bytecode}"


def format_as_comments(text: str) -> str:
    """Format lines as comments: the file stays Python."""
    return "".join(f"# {line}\n" for line in text.splitlines())


def read_guards(old_code: CodeType, new_code: CodeType) -> str | None:
    """Read the guards of the cache entry that holds the code, as torch prints them."""
    with contextlib.suppress(Exception):
        native: Any = sys.modules["torch._C._dynamo.eval_frame"]
        for entry in native._debug_get_cache_entry_list(old_code):
            if entry.code is new_code:
                return str(entry.guard_manager)
    return None


# So that the next sitecustomize is found.
HERE = os.path.dirname(__file__)
sys.path[:] = [entry for entry in sys.path if entry != HERE]
sys.path_importer_cache.pop(HERE, None)
del sys.modules[__name__]
try:
    # The sitecustomize that this one shadows: that of the harness, which is imported then; it ends
    # in an error, which `site` expects, where the user has none.
    __import__(__name__)
finally:
    with contextlib.suppress(Exception):
        from compilediag_harness.base.post_import import PostImport

        notes = CodeNotes(os.environ["COMPILEDIAG_DEPYF_DIR"])
        PostImport().run_after_import("torch._dynamo.convert_frame", notes.install)
