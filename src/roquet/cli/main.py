"""roquet: the root command and its command tree.

A module of commands is imported when one of them is named: `roquet dev` imports no Spark, no client
and no rich, and `roquet --help` imports no command at all.
"""

import os
import sys
from collections.abc import Callable, Iterator, Mapping
from importlib import import_module
from types import MappingProxyType
from typing import Annotated, Any, Final, NamedTuple

import typer
from typer.main import get_command, get_group

from roquet import __version__
from roquet.cli.command_options import convert_plainly
from roquet.cli.operator_command import CommandGroup, as_command
from roquet.cli.terminal import output
from roquet.cli.terminal.command_help import HelpfulGroup
from roquet.cli.terminal.exit_codes import FAILED, INTERRUPTED, WRONG_USE
from roquet.model.errors import ConfigError, RoquetError, UsageError


class CommandPlace(NamedTuple):
    """The module of a command, and the first sentence of its help."""

    module: str
    """Below roquet.cli. It has a function or a group of the command's name, else a group `app`."""
    summary: str


COMMANDS: Final[Mapping[str, Mapping[str, CommandPlace]]] = MappingProxyType(
    {
        "Servers": {
            "dev": CommandPlace(
                "servers.start", "Start a name server and a broker in one process, for developers."
            ),
            "serve": CommandPlace(
                "servers.supervisor", "Start a name server, brokers and replicas, a process each."
            ),
            "namesrv": CommandPlace(
                "servers.name_server",
                "Start a name server, and a controller in the same process if that is asked for.",
            ),
            "broker": CommandPlace("admin.broker", "Start a broker."),
            "controller": CommandPlace(
                "servers.controller",
                "Start a controller, which elects masters of brokers that replicate.",
            ),
            "dashboard": CommandPlace(
                "servers.dashboard", "Show a cluster as web pages, and change it there."
            ),
        },
        "Messages": {
            "produce": CommandPlace(
                "messaging.messages", "Send messages; each receipt is printed: id, queue, offset."
            ),
            "consume": CommandPlace(
                "messaging.messages", "Print a topic's messages as they come, until Ctrl-C."
            ),
            "message": CommandPlace("messaging.lookup", "Single messages."),
            "dlq": CommandPlace("messaging.dlq", "Messages that groups gave up."),
            "set-aside": CommandPlace(
                "messaging.dlq", "Messages that a broker's services cannot handle."
            ),
        },
        "Operation": {
            "topic": CommandPlace("admin.topic", "Topics and their queues."),
            "group": CommandPlace("admin.group", "Consumer groups."),
            "cluster": CommandPlace("admin.cluster", "Brokers, their status and their roles."),
            "acl": CommandPlace("admin.acl.command", "Users and what they may do."),
            "dump": CommandPlace(
                "admin.store_files", "Print the contents of a store file, one entry a line."
            ),
            "check": CommandPlace("admin.store_files", "Check a data directory for damage."),
            "health": CommandPlace("admin.health", "Ask whether a server with --metrics is ready."),
            "backup": CommandPlace(
                "admin.store_files", "Make a backup of a data directory; its broker goes on."
            ),
            "restore": CommandPlace(
                "admin.store_files",
                "Make a data directory of a backup, and compare its checksums; "
                "a broker can be started on it.",
            ),
            "support": CommandPlace("admin.health", "What others need to help."),
        },
        "Spark": {
            "spark": CommandPlace("spark_jobs.commands", "Jobs on Spark: topics to tables."),
            "lake": CommandPlace("lake.query", "Tables of archives, without Spark."),
        },
        "Trying out": {
            "demo": CommandPlace(
                "demo.command",
                "Send real flights through brokers, consumers and Spark, to a table and a report.",
            ),
            "balance": CommandPlace(
                "balance.command", "Compare strategies: who has which queue, and what moves."
            ),
            "lab": CommandPlace(
                "balance.lab", "Try balance strategies over simulated histories, on Spark."
            ),
        },
    }
)
"""The headings of `roquet --help`, and the commands below each."""

PLACES: Final = {name: one for section in COMMANDS.values() for name, one in section.items()}


class LazyCommands(Mapping[str, Any]):
    """Commands by name; the module of a command is imported when that command is asked for."""

    def __init__(self) -> None:
        self._loaded: dict[str, Any] = {}

    def __getitem__(self, name: str) -> Any:
        if name not in self._loaded:
            module = import_module(f"roquet.cli.{PLACES[name].module}")
            self._loaded[name] = _loaded(
                getattr(module, name.replace("-", "_"), None) or module.app
            )
        return self._loaded[name]

    def __iter__(self) -> Iterator[str]:
        return iter(PLACES)

    def __len__(self) -> int:
        return len(PLACES)


def _loaded(command: CommandGroup | Callable[..., Any]) -> Any:
    """A group of commands, or a function that is one, as the root command takes it."""
    if isinstance(command, CommandGroup):
        return get_group(command)
    alone = typer.Typer(add_completion=False, rich_markup_mode=None)
    alone.command()(as_command(command))
    return get_command(alone)


class RootCommand(HelpfulGroup):
    """The root command; its help lists the commands in sections."""

    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings)
        self.commands: Any = LazyCommands()

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Parse the options before the command's name."""
        convert_plainly(self, ctx)
        return super().parse_args(ctx, args)

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        """The command of a name; servers are started without libraries that they do not need."""
        command = super().get_command(ctx, cmd_name)
        if command is not None and cmd_name in COMMANDS["Servers"]:
            convert_plainly(command, ctx)
        return command

    def format_commands(self, ctx: Any, formatter: Any) -> None:  # noqa: ARG002 - click's
        """Write a list for each section, in columns of one width."""
        width = max(map(len, PLACES))
        for title, section in COMMANDS.items():
            with formatter.section(title):
                rows = [(name.ljust(width), place.summary) for name, place in section.items()]
                formatter.write_dl(rows)

    def list_commands(self, ctx: Any) -> list[str]:  # noqa: ARG002 - click's
        """The names of all commands; none is imported."""
        return list(PLACES)


app: Final = typer.Typer(
    name="roquet",
    cls=RootCommand,
    no_args_is_help=True,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
)


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
