"""Names of a notebook's cells: IPython gives each a file that does not exist."""

from __future__ import annotations

import sys


def cell_of(file: str) -> str | None:
    """`In[3]` for the file of cell 3; None for any other file, and outside a notebook."""
    ipython = sys.modules.get("IPython")
    shell = None if ipython is None else ipython.get_ipython()
    named = None if shell is None else shell.compile.format_code_name(file)
    return None if named is None else str(named[1])
