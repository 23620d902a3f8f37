"""What commands are asked about: a path, completed by the shell and checked by who reads it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem


class PathName(click.types.StringParamType):
    """As `click.Path`, which looks for a translation of the word when it is made: that imports
    `locale`, and costs a short command more than reading its receipt."""

    name = "path"

    def shell_complete(
        self, ctx: click.Context, param: click.Parameter, incomplete: str
    ) -> list[CompletionItem]:
        """Leaves it to the shell, which knows the files."""
        from click.shell_completion import CompletionItem

        return [CompletionItem(incomplete, type="file")]


PATH = PathName()
