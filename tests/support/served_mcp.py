"""A session with `compilediag mcp` by the SDK's own client; of each reply size and envelope are
checked."""

import contextlib
import json
import os
import sys
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import anyio
from mcp import Client, StdioServerParameters, stdio_client

LIMIT = 2000
OPENING, CLOSING = "<data> All up to", "\n</data>"
GOES_ON = "goes on after"


@dataclass
class Reply:
    """The answer of one call, all of its pieces together."""

    text: str
    failed: bool
    data: Any = None
    """What stood in the envelope, as JSON; None without one."""
    pieces: int = 1
    progress: list[float] = field(default_factory=list)


def serve(root: Path, act: Callable[[Client], Awaitable[None]]) -> None:
    """Start a server for a folder, and act as its client."""
    nowhere = open(os.devnull, "w", encoding="utf-8")

    async def run() -> None:
        words = ["-m", "compilediag", "mcp", "--root", str(root)]
        parameters = StdioServerParameters(command=sys.executable, args=words, env={**os.environ})
        with anyio.fail_after(580):
            async with Client(stdio_client(parameters, errlog=nowhere)) as client:
                await act(client)

    with nowhere:
        anyio.run(run)


async def call(client: Client, tool: str, *, follow: bool = True, **arguments: Any) -> Reply:
    """Call a tool, and read on while the reply has a cursor; with `follow`, wait for its job."""
    seen: list[float] = []

    async def note(progress: float, total: float | None, message: str | None) -> None:
        seen.append(progress)

    text, data, pieces = "", "", 0
    while True:
        result = await client.call_tool(tool, arguments, progress_callback=note)
        (block,) = result.content
        assert len(block.text.encode()) <= LIMIT
        pieces += 1
        head, opening, rest = block.text.partition(OPENING)
        if opening:
            piece = rest.partition("\n")[2].removesuffix(CLOSING)
            assert "<" not in piece, "it could close its envelope"
            assert block.text.endswith(CLOSING)
            data += piece
        text += block.text
        goes_on = follow and GOES_ON in head and not result.is_error
        if not goes_on and not head.partition("\n")[2].startswith("more: cursor '"):
            break
        tool, arguments = "more", {"cursor": head.split("'")[1]}
    content = None
    with contextlib.suppress(ValueError):
        content = json.loads(data)
    return Reply(text, bool(result.is_error), content, pieces, seen)
