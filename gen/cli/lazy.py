"""What lets a command start quickly: it imports its own code alone, and pydantic where it must.

typer has pydantic look at every value, also where none is given. Importing pydantic takes as long
as most commands, so parameters keep a value that is right as it is.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property
from typing import Any

import typer
from typer.core import TyperArgument, TyperCommand, TyperGroup, TyperOption

from gen.errors import UsageError


class Group(TyperGroup):
    """The commands."""

    def get_params(self, ctx: Any) -> list[Any]:
        """The parameters, which keep what they can."""
        return _keeping(super().get_params(ctx))


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

    def get_params(self, ctx: Any) -> list[Any]:
        """The parameters, which keep what they can."""
        return _keeping(super().get_params(ctx))

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """The arguments that are left; `ctx` then has the parameters."""
        order = self.make_parser(ctx).parse_args(list(args))[2]
        for option in order:
            single = isinstance(option, TyperOption) and not (option.multiple or option.is_flag)
            if single and order.count(option) > 1:
                raise UsageError(f"{option.opts[-1]} is there twice, and takes one value; give one")
        return super().parse_args(ctx, args)


class _Option(TyperOption):
    def process_value(self, ctx: Any, value: Any) -> Any:
        return _process(self, super().process_value, ctx, value)


class _Argument(TyperArgument):
    def process_value(self, ctx: Any, value: Any) -> Any:
        return _process(self, super().process_value, ctx, value)


def _keeping(parameters: list[Any]) -> list[Any]:
    """The same; typer makes them, and lets nobody choose their class before."""
    for parameter in parameters:
        parameter.__class__ = _Option if isinstance(parameter, TyperOption) else _Argument
    return parameters


def _process(
    parameter: _Option | _Argument, convert: Callable[[Any, Any], Any], ctx: Any, value: Any
) -> Any:
    """What typer would make of a value, by `convert` where it has to be converted."""
    described = getattr(parameter, "type_descriptor", None)
    if described is None:  # typer 0.28, which does without pydantic
        return convert(ctx, value)
    if value is None:
        is_right = not parameter.required
    elif described.annotation == list[str]:
        is_right = all(type(one) is str for one in value)
    else:
        is_right = type(value) is described.annotation
    if not is_right:
        return convert(ctx, value)
    if value is not None and described.parameter_info.parser:
        value = described.parameter_info.parser(value)
    return parameter.callback(ctx, parameter, value) if parameter.callback else value
