"""Commands whose code is imported where they are used."""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property
from typing import Any

import typer
from typer.core import TyperCommand, TyperOption

from gen.errors import UsageError


class LazyCommand(TyperCommand):
    """What the list of all commands has of one: its name and its help.

    Its function takes no options. It imports the function that does, and returns that one.
    """

    @cached_property
    def whole(self) -> Any:
        """The command with its options."""
        load: Callable[[], Callable[..., None]] | None = self.callback
        assert load
        alone = typer.Typer(add_completion=False, rich_markup_mode=None)
        alone.command(self.name, cls=_Command, help=self.help, epilog=self.epilog)(load())
        return typer.main.get_command(alone)

    def make_context(self, *args: Any, **settings: Any) -> Any:
        """That of the whole command: what runs, completes and explains a command begins with it."""
        return self.whole.make_context(*args, **settings)


class _Command(TyperCommand):
    """Refuses an option that has one value and is there twice: it would drop the first."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """The arguments that are left; `ctx` then has the parameters."""
        order = self.make_parser(ctx).parse_args(list(args))[2]
        for option in order:
            single = isinstance(option, TyperOption) and not (option.multiple or option.is_flag)
            if single and order.count(option) > 1:
                raise UsageError(f"{option.opts[-1]} is there twice, and takes one value; give one")
        return super().parse_args(ctx, args)
