"""`%load_ext compilediag`: the cell magic `%%compilediag`, which watches what a cell compiles."""

from __future__ import annotations

import ast
import inspect
import os
from itertools import takewhile
from typing import Any, cast

from IPython.core import magic_arguments as arguments
from IPython.core.getipython import get_ipython
from IPython.display import display  # pyright: ignore[reportUnknownVariableType]

from compilediag.commands.terminal import write
from compilediag.runs.watch import WatchResult, find_cell_name, watch

NAME = "compilediag"
_ARGUMENTS: Any = arguments  # IPython has no types for it
RESULT = "_compilediag"
"""Variable of the notebook that has the result of the last cell, as `watch()` gives it."""


def load_ipython_extension(shell: Any) -> None:
    """Registers the magic; IPython calls it for `%load_ext`."""
    shell.register_magic_function(watch_cell, "cell", NAME)


def unload_ipython_extension(shell: Any) -> None:
    """Removes the magic again; IPython calls it for `%unload_ext`."""
    shell.magics_manager.magics["cell"].pop(NAME, None)


@_ARGUMENTS.magic_arguments(NAME)
@_ARGUMENTS.argument(
    "--configuration",
    "--lane",
    metavar="NAME",
    help="name under which the receipt is compared with others",
)
@_ARGUMENTS.argument("--save", metavar="FILE", help="write the receipt to FILE")
@_ARGUMENTS.argument(
    "--quiet", action="store_true", help="show nothing; the result is in _compilediag"
)
def watch_cell(line: str, cell: str) -> None:
    """Run a cell and show why torch.compile compiled again in it.

    What was compiled in earlier cells is not counted. The result stays in the variable
    _compilediag: _compilediag.findings, _compilediag.receipt.
    """
    __tracebackhide__ = True  # a traceback begins in the cell, as that of a plain one does
    if {"-h", "--help"} & {*line.split()}:
        write(f"{watch_cell.__doc__}\n")  # magic_arguments has added the options
        return
    options = _ARGUMENTS.parse_argstring(watch_cell, line)
    shell = cast("Any", get_ipython())
    seen: WatchResult | None = None
    try:
        # With a folder named, that of this file is not taken for one of the user's.
        with watch(user_roots=(os.getcwd(),), lane=options.configuration) as seen:
            _run_cell(shell, cell)
    finally:
        if seen is not None:
            shell.user_ns[RESULT] = seen
            if options.save:
                seen.save(options.save)
            if not options.quiet:
                display(seen)


def _find_cell_number(shell: Any) -> int:
    """Find the number of the cell that runs by its frame, else the shell's count of executions."""
    frame = inspect.currentframe()
    while frame is not None:
        named = find_cell_name(frame.f_code.co_filename)
        if named is not None:
            return int(named[3:-1])  # "In[3]"
        frame = frame.f_back
    return shell.execution_count


def _run_cell(shell: Any, cell: str) -> None:
    """Runs the cell's code in the notebook's own names; the value of its last line is shown."""
    __tracebackhide__ = True
    # IPython drops empty lines at the top, and the line of the magic stands above them.
    above = 1 + len(list(takewhile(lambda line: not line.strip(), cell.splitlines())))
    source = "\n" * above + shell.transform_cell(cell)
    name = shell.compile.cache(source, _find_cell_number(shell), raw_code=source)
    tree = shell.compile.ast_parse(source, filename=name)
    for transform in shell.ast_transformers:
        tree = transform.visit(tree)
    displays = not shell.displayhook.semicolon_at_end_of_expression(cell)
    for node in tree.body:
        # As a cell: the value of the last expression goes to the display.
        shown = displays and node is tree.body[-1] and isinstance(node, ast.Expr)
        part: Any = ast.Interactive([node]) if shown else ast.Module([node], [])
        exec(  # noqa: S102 - as IPython does with every cell
            shell.compile(part, name, "single" if shown else "exec"),
            shell.user_global_ns,
        )
