"""Command help: summaries are wrapped, never cut, options name their values in words, examples."""

from typing import Any, Final

from typer.core import TyperGroup, TyperOption

from roquet.cli.terminal.examples import EXAMPLES

SUMMARY_MAX: Final = 1_000
"""Characters of the longest summary: more than any has."""


class HelpfulGroup(TyperGroup):
    """A group of commands whose help is wrapped to the terminal and never cut."""

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        """The command of a name, with metavars in plain words and with examples."""
        command = super().get_command(ctx, cmd_name)
        if command is not None:
            set_metavars(command)
            command.epilog = _examples(ctx, cmd_name)
        return command

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        """Write each command and its summary."""
        names = self.list_commands(ctx)
        with formatter.section("Commands"):
            formatter.write_dl([(name, self.summary(name)) for name in names])

    def summary(self, name: str) -> str:
        """The first sentence of a command's help."""
        return self.commands[name].get_short_help_str(SUMMARY_MAX)


def _examples(ctx: Any, name: str) -> str | None:
    """The end of a command's help: its examples, a line each; None for a group."""
    words = [name]
    while ctx.parent is not None:
        words.insert(0, ctx.info_name)
        ctx = ctx.parent
    lines = EXAMPLES.get(" ".join(words))
    return None if lines is None else "\n".join(["\b", "Examples:", *lines])


def set_metavars(command: Any) -> None:
    """Set metavars of options to TEXT, N or PATH: typer shows `<list[str]>` or `<int range>`."""
    for option in command.params:
        if isinstance(option, TyperOption) and option.metavar is None and not option.is_flag:
            option.metavar = _word(option.type_descriptor)


def _word(kind: Any) -> str | None:
    """The word for a type; None where typer lists the choices."""
    if kind.is_choice:
        return None
    if kind.is_path:
        return "PATH"
    return "N" if kind.is_ranged or kind.annotation in {int, float} else "TEXT"
