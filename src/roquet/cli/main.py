"""roquet: the root command and its command tree.

A command imports what it needs when it runs: `roquet dev` imports no Spark, no client and no rich,
and `roquet --help` no server either.
"""

import os
import sys
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Annotated, Any, Final

import typer

from roquet import __version__
from roquet.cli.admin import (
    backups,
    broker,
    cluster,
    group,
    health,
    name_server,
    store_files,
    support,
    topic,
)
from roquet.cli.admin.acl import command as acl
from roquet.cli.balance import command as balance
from roquet.cli.balance import lab
from roquet.cli.demo import command as demo
from roquet.cli.lake import query
from roquet.cli.messaging import consume, dlq, lookup, produce, set_aside
from roquet.cli.operator_command import CommandGroup, as_command, command_name
from roquet.cli.servers import controller, dashboard, start, supervisor
from roquet.cli.spark_jobs import commands
from roquet.cli.terminal import output
from roquet.cli.terminal.command_help import HelpfulGroup
from roquet.cli.terminal.exit_codes import FAILED, INTERRUPTED, WRONG_USE
from roquet.cli.terminal.plain_options import convert_plainly
from roquet.model.errors import ConfigError, RoquetError, UsageError

COMMANDS: Final[Mapping[str, Sequence[Callable[..., Any] | CommandGroup]]] = MappingProxyType(
    {
        "Servers": (
            start.dev,
            supervisor.serve,
            name_server.app,
            broker.app,
            controller.controller,
            dashboard.dashboard,
        ),
        "Messages": (produce.produce, consume.consume, lookup.app, dlq.app, set_aside.app),
        "Operation": (
            topic.app,
            group.app,
            cluster.app,
            acl.app,
            store_files.dump,
            store_files.check,
            health.health,
            backups.backup,
            backups.restore,
            support.app,
        ),
        "Spark": (commands.app, query.app),
        "Trying out": (demo.demo, balance.balance, lab.app),
    }
)
"""Headings of `roquet --help`, and the commands and groups below each."""

SECTIONS: Final[Mapping[str, Sequence[str]]] = MappingProxyType(
    {title: [command_name(one) for one in found] for title, found in COMMANDS.items()}
)
"""The names of the commands below each heading."""


class RootCommand(HelpfulGroup):
    """The root command; its help lists the commands in sections."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Parse the options before the command's name."""
        convert_plainly(self, ctx)
        return super().parse_args(ctx, args)

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        """The command of a name; servers are started without libraries that they do not need."""
        command = super().get_command(ctx, cmd_name)
        if command is not None and cmd_name in SECTIONS["Servers"]:
            convert_plainly(command, ctx)
        return command

    def format_commands(self, ctx: Any, formatter: Any) -> None:  # noqa: ARG002 - click's
        """Write a list for each section, in columns of one width."""
        width = max(map(len, self.commands))
        for title, names in SECTIONS.items():
            with formatter.section(title):
                formatter.write_dl([(name.ljust(width), self.summary(name)) for name in names])


app: Final = typer.Typer(
    name="roquet",
    cls=RootCommand,
    no_args_is_help=True,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
)
for _command in (one for found in COMMANDS.values() for one in found):
    if isinstance(_command, CommandGroup):
        app.add_typer(_command)
    else:
        app.command()(as_command(_command))


def _show_version(wanted: bool) -> None:
    if wanted:
        from roquet.wire.records.speedups import DESCRIPTION

        output.echo(f"roquet {__version__} ({DESCRIPTION})")
        raise typer.Exit


@app.callback()
def _root(
    version: Annotated[
        bool,
        typer.Option("--version", callback=_show_version, is_eager=True, help="Print the version."),
    ] = False,
) -> None:
    """RocketMQ for Python and Spark: name server, broker, client and pipeline in one install."""


def main() -> None:
    """Run `roquet`."""
    run(app)


def run(command: Callable[[], object]) -> None:
    """Run a command; an error is one line on stderr and an exit code."""
    try:
        command()
    except KeyboardInterrupt:
        sys.exit(INTERRUPTED)
    except BrokenPipeError:  # the reader of a pipe has ended, as in `roquet dump FILE | head`
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(FAILED)
    except (ConfigError, UsageError) as error:
        _fail(error, WRONG_USE)
    except (RoquetError, OSError) as error:
        _fail(error, FAILED)


def _fail(error: Exception, code: int) -> None:
    first, *rest = f"roquet: {error}".split("\n")
    output.echo(first, err=True)
    for line in rest:  # indented: only roquet's own lines begin at the margin
        output.echo(f"  {line.strip()}", err=True)
    sys.exit(code)
