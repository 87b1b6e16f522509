"""Operator command: a function becomes a command that logs, asks the cluster and prints a result.

    @app.command()
    async def show(admin: "AdminClient", name: TopicArgument) -> Result: ...

Parameters that are no arguments or options are given by the command, which has options for them:

    admin       --namesrv            a client that is open until the function has returned
    namesrv     --namesrv            the addresses of the name servers
    approval    --dry-run, --yes     the preview of a change, and the question before it
    as_json     --json               whether JSON is printed; a `Result` needs no such parameter
    options     those of its class   a value of a `CommandOptions`
"""

import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Set
from functools import wraps
from inspect import Parameter, Signature, iscoroutinefunction, signature
from typing import TYPE_CHECKING, Annotated, Any, Final, TypeVar, get_origin, get_type_hints

import msgspec
import typer

from roquet.cli.process import runtime
from roquet.cli.terminal import output
from roquet.cli.terminal.command_help import HelpfulGroup
from roquet.cli.terminal.exit_codes import FAILED
from roquet.cli.terminal.name_servers import NamesrvOption, namesrv_addresses
from roquet.cli.terminal.output import DryRunOption, YesOption
from roquet.model.errors import RoquetError

if TYPE_CHECKING:
    from rich.console import RenderableType

F = TypeVar("F", bound=Callable[..., Any])

JSON_HELP: Final = "JSON, with everything that is known."


class Result(msgspec.Struct, frozen=True, kw_only=True):
    """Output of a command, and its exit code."""

    json: Iterable[Any]
    """Values of which --json prints one a line."""
    text: "Iterable[RenderableType]" = ()
    """Lines and tables to print without --json; a generator makes them only then."""
    hints: Iterable[str] = ()
    """Lines on stderr beside the text."""
    notes: Iterable[str] = ()
    """Lines on stderr, also with --json."""
    faults: Sequence[str] = ()
    """Lines on stderr, also with --json; with any of them the exit code is 1."""
    is_failed: bool = False
    """Whether the exit code is 1 even without faults."""
    error: RoquetError | None = None
    """Raised after everything was printed."""

    def show(self, *, as_json: bool) -> None:
        """Print the result; exits with code 1 if the command failed."""
        if as_json:
            output.echo_json(self.json)
        else:
            show_text(self.text)
            output.echo_errors(self.hints)
        output.echo_errors(self.notes)
        output.echo_errors(self.faults)
        if self.error is not None:
            raise self.error
        if self.faults or self.is_failed:
            sys.exit(FAILED)


class Approval(msgspec.Struct, frozen=True, kw_only=True):
    """The options of a change: whether it is made at all, and whether the user is asked before."""

    dry_run: bool
    yes: bool
    as_json: bool

    async def ask(self, preview: Iterable[str], question: str) -> bool:
        """Print what would be done, and ask whether to do it; False with --dry-run.

        A no ends the command.
        """
        self.show(preview)
        return await self.confirm(question)

    def show(self, preview: Iterable[str]) -> None:
        """Print what would be done; on stderr where stdout holds JSON."""
        output.show_preview(preview, dry_run=self.dry_run, json=self.as_json)

    async def confirm(self, question: str) -> bool:
        """Ask whether to do it; False with --dry-run."""
        if not self.dry_run:
            await output.confirm(question, yes=self.yes, to_stderr=self.as_json)
        return not self.dry_run

    def result(self, rows: Iterable[Mapping[str, Any]], line: str) -> Result:
        """The result of a change: rows with `changed` for JSON, a line if it was made."""
        return Result(
            json=({**row, "changed": not self.dry_run} for row in rows),
            text=() if self.dry_run else (line,),
        )


class CommandGroup(typer.Typer):
    """A group of commands, such as `roquet topic`."""

    def __init__(self, name: str, about: str | None = None, **settings: Any) -> None:
        settings = {"no_args_is_help": True, "cls": HelpfulGroup, **settings}
        if about is not None:
            settings["help"] = about
        super().__init__(name=name, rich_markup_mode=None, **settings)

    def command(
        self, name: str | None = None, *, json_help: str = JSON_HELP, **settings: Any
    ) -> Callable[[F], F]:
        """Make a function a command of the group; callers of the function see no difference."""

        def register(function: F) -> F:
            super(CommandGroup, self).command(name, **settings)(as_command(function, json_help))
            return function

        return register


class CommandOptions:
    """Options of a command as one value: its fields are declared like parameters of a function.

    Those of a derived class come before those of its bases.
    """

    def __init__(self, **values: Any) -> None:
        vars(self).update(values)

    @classmethod
    def declared(cls) -> list[Parameter]:
        """The options, in the order of the help."""
        hints = get_type_hints(cls, include_extras=True)
        names = [name for one in cls.__mro__ for name in vars(one).get("__annotations__", ())]
        in_order = [*dict.fromkeys(reversed(names))]  # one that is declared anew keeps its place
        return [
            _option(name, hints[name], default=getattr(cls, name, Parameter.empty))
            for name in reversed(in_order)
        ]


def command_name(command: CommandGroup | Callable[..., Any]) -> str:
    """The name of a group, or of a function on the command line."""
    if isinstance(command, CommandGroup):
        return str(command.info.name)
    return command.__name__.replace("_", "-")


def as_command(function: Callable[..., Any], json_help: str = JSON_HELP) -> Callable[..., None]:
    """A function as typer takes it: parameters given by the command are replaced by options.

    One without such parameters and without a result is returned as it is.
    """
    declared = signature(function)
    parameters = declared.parameters
    own = [one for one in parameters.values() if _is_on_the_command_line(one)]
    grouped = parameters["options"].annotation if "options" in parameters else CommandOptions
    names = {one.name for one in own}
    given = parameters.keys() - names
    has_json = declared.return_annotation in (Result, Result | None)
    if not given and not has_json and declared.return_annotation in (None, Signature.empty):
        return function
    shared = _shared_options(given, json_help, has_json=has_json)
    options = [*own, *grouped.declared(), *(one for one in shared if one.name not in names)]

    @wraps(function)
    def command(**values: Any) -> None:
        runtime.log_to_stderr(verbose=values.get("verbose", False))
        values.setdefault("json", False)
        arguments = {name: values[name] for name in names} | _given(given, values, grouped)
        result = _call(function, arguments)
        if isinstance(result, Result):
            result.show(as_json=values["json"])
        elif result is not None:
            show_text(result)

    vars(command)["__signature__"] = Signature(options)
    command.__annotations__ = {one.name: one.annotation for one in options}
    return command


def _is_on_the_command_line(parameter: Parameter) -> bool:
    return get_origin(parameter.annotation) is Annotated or parameter.annotation is typer.Context


def _shared_options(given: Set[str], json_help: str, *, has_json: bool) -> Iterator[Parameter]:
    """Options that stand for the given parameters, in the order of the help."""
    if "approval" in given:
        yield _option("dry_run", DryRunOption, default=False)
        yield _option("yes", YesOption, default=False)
    if has_json or "as_json" in given:
        json = Annotated[bool, typer.Option("--json", help=json_help)]
        yield _option("json", json, default=False)
    if not given.isdisjoint({"admin", "namesrv"}):
        yield _option("namesrv", NamesrvOption, default=None)


def _option(name: str, annotation: Any, *, default: object) -> Parameter:
    return Parameter(name, Parameter.KEYWORD_ONLY, annotation=annotation, default=default)


def _given(
    names: Set[str], values: Mapping[str, Any], grouped: type[CommandOptions]
) -> dict[str, Any]:
    """Values of the given parameters."""
    given: dict[str, Any] = {}
    if "approval" in names:
        dry_run, yes = values["dry_run"], values["yes"]
        given["approval"] = Approval(dry_run=dry_run, yes=yes, as_json=values["json"])
    if "as_json" in names:
        given["as_json"] = values["json"]
    if "options" in names:
        given["options"] = grouped(**{one.name: values[one.name] for one in grouped.declared()})
    for name in names & {"admin", "namesrv"}:
        given[name] = namesrv_addresses(values["namesrv"])
    return given


def _call(function: Callable[..., Any], arguments: dict[str, Any]) -> Any:
    """Call a function, or run a coroutine; addresses for `admin` become a client."""
    if not iscoroutinefunction(function):
        return function(**arguments)

    async def run() -> Any:
        if "admin" not in arguments:
            return await function(**arguments)
        from roquet.admin.client import AdminClient

        async with AdminClient(arguments["admin"]) as admin:
            return await function(**{**arguments, "admin": admin})

    return runtime.run(run())


def show_text(parts: "Iterable[RenderableType]") -> None:
    """Print lines as they are, and everything else by rich."""
    for part in parts:
        if isinstance(part, str):
            output.echo(part)
        else:
            output.console().print(part)
