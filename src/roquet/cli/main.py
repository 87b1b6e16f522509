"""roquet: the root command and its command tree.

A module of commands is imported when one of them is named: `roquet dev` imports no Spark, no client
and no rich, and `roquet --help` imports no command at all.
"""

import os
import sys
from collections.abc import Callable, Iterator, Mapping
from importlib import import_module
from types import ModuleType
from typing import Annotated, Any, Final

import typer
from typer.main import get_command, get_group

from roquet import __version__
from roquet.cli.command_options import convert_plainly
from roquet.cli.operator_command import CommandGroup, as_command
from roquet.cli.terminal import output
from roquet.cli.terminal.command_help import HelpfulGroup
from roquet.cli.terminal.exit_codes import FAILED, INTERRUPTED, WRONG_USE
from roquet.model.errors import ConfigError, RoquetError, UsageError

COMMANDS: Final[Mapping[str, Mapping[str, str]]] = {
    "Servers": {
        "servers.start:dev": "Start a name server and a broker in one process, for developers.",
        "servers.supervisor:serve": "Start a name server, brokers and replicas, a process each.",
        "servers.name_server:namesrv": (
            "Start a name server, and a controller in the same process if that is asked for."
        ),
        "admin.broker:broker": "Start a broker.",
        "servers.controller:controller": (
            "Start a controller, which elects masters of brokers that replicate."
        ),
        "servers.proxy:proxy": (
            "Serve RocketMQ 5's official clients in front of a cluster, Apache's or Roquet's."
        ),
        "servers.dashboard:dashboard": "Show a cluster as web pages, and change it there.",
    },
    "Messages": {
        "messaging.produce:produce": "Send messages; each receipt is printed: id, queue, offset.",
        "messaging.consume:consume": "Print a topic's messages as they come, until Ctrl-C.",
        "messaging.lookup:message": "Single messages.",
        "messaging.dlq:dlq": "Messages that groups gave up.",
        "messaging.dlq:set-aside": "Messages that a broker's services cannot handle.",
    },
    "Operation": {
        "admin.topic:topic": "Topics and their queues.",
        "admin.group:group": "Consumer groups.",
        "admin.cluster:cluster": "Brokers, their status and their roles.",
        "admin.mirror:mirror": "Copy topics, and the progress of groups, to another cluster.",
        "admin.profile:profile": "Clusters by name: their addresses, TLS files and keys.",
        "admin.acl.command:acl": "Users and what they may do.",
        "admin.store_files:dump": "Print the contents of a store file, one entry a line.",
        "admin.store_files:check": "Check a data directory for damage.",
        "admin.health:health": "Ask whether a server with --metrics is ready.",
        "admin.store_files:backup": "Make a backup of a data directory; its broker goes on.",
        "admin.store_files:restore": (
            "Make a data directory of a backup, and compare its checksums; a broker can be "
            "started on it."
        ),
        "admin.health:support": "What others need to help.",
    },
    "Spark": {
        "spark_jobs.commands:spark": "Jobs on Spark: topics to tables.",
        "lake.query:lake": "Tables of archives, without Spark.",
    },
    "Trying out": {
        "demo.command:demo": (
            "Send real flights through brokers, consumers and Spark, to a table and a report."
        ),
        "balance.command:balance": "Compare strategies: who has which queue, and what moves.",
        "balance.lab:lab": "Try balance strategies over simulated histories, on Spark.",
    },
}
"""The headings of `roquet --help`, the commands below each as MODULE:NAME in roquet.cli, and the
first sentence of each one's help. A module has a function or a group of that name, else `app`."""

SYNONYMS: Final = {
    "publish": "produce",
    "receive": "consume",
    "send": "produce",
    "start": "dev",
    "subscribe": "consume",
}
"""Names that other tools have for our commands: the error suggests ours."""

_PLACES: Final = [place.partition(":") for section in COMMANDS.values() for place in section]
MODULES: Final = {name: module for module, _, name in _PLACES}
SECTIONS: Final[Mapping[str, Mapping[str, str]]] = {
    heading: {place.partition(":")[2]: summary for place, summary in section.items()}
    for heading, section in COMMANDS.items()
}
"""The headings of the help, and below each the names and summaries of its commands."""


_EXTRAS: Final = {"lake": "lake", "spark_jobs": "spark", "balance": "spark", "demo": "demo"}
"""Extras that whole families of commands need, by the first part of their module; else `cli`."""


def _imported(module: str) -> ModuleType:
    """Import a module of commands; UsageError with the extra that it needs, if one is missing."""
    try:
        return import_module(f"roquet.cli.{module}")
    except ModuleNotFoundError as error:
        if error.name is None or error.name.partition(".")[0] == "roquet":
            raise
        extra = _EXTRAS.get(module.partition(".")[0], "cli")
        raise UsageError(f"{error.name} not installed: pip install 'roquet[{extra}]'") from error


class LazyCommands(Mapping[str, Any]):
    """Commands by name; the module of a command is imported when that command is asked for."""

    def __init__(self) -> None:
        self._loaded: dict[str, Any] = {}

    def __getitem__(self, name: str) -> Any:
        if name not in self._loaded:
            module = _imported(MODULES[name])
            self._loaded[name] = _loaded(
                getattr(module, name.replace("-", "_"), None) or module.app
            )
        return self._loaded[name]

    def __iter__(self) -> Iterator[str]:
        return iter(MODULES)

    def __len__(self) -> int:
        return len(MODULES)


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
        ours = {name for option in self.get_params(ctx) for name in option.opts}
        is_ours = not args or args[0] in ours or args[0][:2] not in {"--", "-n"}
        if not is_ours and not ctx.resilient_parsing:
            ctx.fail(
                f"No such option: {args[0]}; options come after the command, as in "
                f"`roquet topic ls {args[0]}`"
            )
        return super().parse_args(ctx, args)

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """Find the command of a name; for another tool's name the error suggests ours."""
        if args and (ours := SYNONYMS.get(args[0])) is not None:
            ctx.fail(f"No such command {args[0]!r}. Did you mean {ours!r}?")
        return super().resolve_command(ctx, args)

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        """The command of a name; servers are started without libraries that they do not need."""
        command = super().get_command(ctx, cmd_name)
        if command is not None and cmd_name in SECTIONS["Servers"]:
            convert_plainly(command, ctx)
        return command

    def format_commands(self, ctx: Any, formatter: Any) -> None:  # noqa: ARG002 - click's
        """Write a list for each section, in columns of one width."""
        width = max(map(len, MODULES))
        for title, section in SECTIONS.items():
            with formatter.section(title):
                rows = [(name.ljust(width), summary) for name, summary in section.items()]
                formatter.write_dl(rows)

    def list_commands(self, ctx: Any) -> list[str]:  # noqa: ARG002 - click's
        """The names of all commands; none is imported."""
        return list(MODULES)


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
    output.accept_any_text()
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
    notes = getattr(error, "__notes__", ())
    first, *rest = "\n".join([f"roquet: {error}", *notes]).split("\n")
    output.echo(first, err=True)
    for line in rest:  # indented: only roquet's own lines begin at the margin
        output.echo(f"  {line.strip()}", err=True)
    sys.exit(code)
