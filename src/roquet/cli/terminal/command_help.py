"""Help of commands: summaries are wrapped, never cut, and options say in words what they take."""

from typing import Any, Final

from typer.core import TyperGroup, TyperOption

SUMMARY_MAX: Final = 1_000
"""Characters of a summary: so many that none is cut."""


class HelpfulGroup(TyperGroup):
    """A group of commands whose help fits any terminal without losing a word."""

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        """The command of a name; what its options take is said in plain words."""
        command = super().get_command(ctx, cmd_name)
        if command is not None:
            set_metavars(command)
        return command

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        """Each command and its summary."""
        names = self.list_commands(ctx)
        with formatter.section("Commands"):
            formatter.write_dl([(name, self.summary(name)) for name in names])

    def summary(self, name: str) -> str:
        """The first sentence of a command's help."""
        return self.commands[name].get_short_help_str(SUMMARY_MAX)


def set_metavars(command: Any) -> None:
    """Say TEXT, N or PATH where typer would say `<list[str]>` or `<int range>`."""
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
