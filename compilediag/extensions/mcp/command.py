"""`compilediag mcp`: the server of the Model Context Protocol, on stdin and stdout."""

from __future__ import annotations

from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

from compilediag.commands.subcommand import subcommand
from compilediag.errors import UsageError
from compilediag.option_fields import option


@dataclass(frozen=True, slots=True)
class McpOptions:
    """The folder that a client may work in."""

    root: str = option("--root DIR", "Nothing outside is read or run; default: .", default=".")


@subcommand("mcp", McpOptions, examples="  compilediag mcp --root project\n")
def command(options: McpOptions) -> None:
    """Serve run, findings, explain, try, certify and gate to an agent.

    The agent's client starts it, and speaks the Model Context Protocol on stdin and stdout.
    Programs run with this Python and this environment.
    """
    root = Path(options.root).resolve()
    if not root.is_dir():
        raise UsageError(f"--root {options.root}: there is no such folder")
    if find_spec("mcp") is None:
        raise UsageError("the server needs the MCP SDK: pip install 'compilediag[mcp]'")
    from compilediag.extensions.mcp.server import serve

    serve(root)
