"""Operator command: a function becomes a command that logs, asks the cluster and prints a result.

    @app.command()
    async def show(admin: "AdminClient", name: TopicArgument) -> Result: ...

Parameters that are no arguments or options are given by the command, which has options for them:

    admin       --namesrv, --profile a client that is open until the function has returned
    namesrv     --namesrv, --profile the addresses of the name servers
    approval    --dry-run, --yes     the preview of a change, and the question before it
    as_json     --json               whether JSON is printed; a `Result` needs no such parameter
    options     those of its class   a value of a `CommandOptions`

A command that only looks may be watched: `@app.command(is_watchable=True)` gives it --watch.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Set
from contextlib import AbstractContextManager, nullcontext, suppress
from functools import partial, wraps
from importlib.util import find_spec
from inspect import Parameter, Signature, iscoroutinefunction, signature
from typing import Annotated, Any, Final, TypeVar, get_origin

import msgspec
import typer

from roquet.cli.command_options import CommandOptions, declared
from roquet.cli.terminal import output
from roquet.cli.terminal.arguments import NamesrvOption, ProfileOption, namesrv_addresses
from roquet.cli.terminal.command_help import HelpfulGroup
from roquet.cli.terminal.output import DryRunOption, YesOption
from roquet.cli.terminal.result import Result as Result
from roquet.cli.terminal.result import show_text as show_text
from roquet.cli.watching import WatchableCommand, WatchOption, watch
from roquet.model.errors import UsageError

F = TypeVar("F", bound=Callable[..., Any])

JSON_HELP: Final = "JSON, with everything that is known."


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
        super().__init__(name=name, rich_markup_mode=None, add_completion=False, **settings)

    def command(
        self,
        name: str | None = None,
        *,
        json_help: str = JSON_HELP,
        is_watchable: bool = False,
        **settings: Any,
    ) -> Callable[[F], F]:
        """Make a function a command of the group; callers of the function see no difference."""
        if is_watchable:
            settings = {"cls": WatchableCommand, **settings}

        def register(function: F) -> F:
            command = as_command(function, json_help, is_watchable=is_watchable)
            super(CommandGroup, self).command(name, **settings)(command)
            return function

        return register

    def callback(self, **settings: Any) -> Callable[[F], F]:
        """Make a function the command that a group is without the name of one of its commands."""

        def register(function: F) -> F:
            command = as_command(function)

            @wraps(function)
            def alone(context: typer.Context, **values: Any) -> None:
                if context.invoked_subcommand is None:
                    command(**values)

            context = _option("context", typer.Context, default=Parameter.empty)
            options = [context, *signature(command).parameters.values()]
            super(CommandGroup, self).callback(**settings)(_with_options(alone, options))
            return function

        return register


def as_command(
    function: Callable[..., Any], json_help: str = JSON_HELP, *, is_watchable: bool = False
) -> Callable[..., None]:
    """A function as typer takes it: parameters given by the command are replaced by options.

    One without such parameters and without a result is returned as it is.
    """
    parameters = {one.name: declared(one) for one in signature(function).parameters.values()}
    _settle(function, parameters.values())
    own = [one for one in parameters.values() if _is_on_the_command_line(one)]
    grouped = parameters["options"].annotation if "options" in parameters else CommandOptions
    names = {one.name for one in own}
    given = parameters.keys() - names
    returned = signature(function).return_annotation
    has_json = returned in (Result, Result | None)
    if not given and not has_json and returned in (None, Signature.empty):
        return function
    shared = _shared_options(given, json_help, has_json=has_json)
    options = [*own, *grouped.declared(), *(one for one in shared if one.name not in names)]
    if is_watchable:
        options.insert(len(own), _option("watch", WatchOption, default=None))

    @wraps(function)
    def command(**values: Any) -> None:
        from roquet.cli.process import runtime  # here: a help text needs no event loop

        runtime.log_to_stderr(verbose=values.get("verbose", False))
        values.setdefault("json", False)
        with _environment(values):
            arguments = {name: values[name] for name in names} | _given(given, values, grouped)
            if (watch_s := values.get("watch")) is not None:
                _watch(function, arguments, watch_s, as_json=values["json"])
                return
            result = _call(function, arguments)
            if isinstance(result, Result):
                result.show(as_json=values["json"])
            elif result is not None:
                show_text(result)

    return _with_options(command, options)


def _settle(function: Callable[..., Any], parameters: Iterable[Parameter]) -> None:
    """Give a function the annotations and defaults that it declares, as its callers see them."""
    target: Any = function
    plain = [one for one in parameters if one.default is not Parameter.empty]
    positional = [one for one in plain if one.kind is not Parameter.KEYWORD_ONLY]
    target.__defaults__ = tuple(one.default for one in positional)
    target.__kwdefaults__ = {one.name: one.default for one in plain if one not in positional}
    target.__annotations__ |= {one.name: one.annotation for one in parameters}


def _with_options(function: Callable[..., Any], options: Iterable[Parameter]) -> Callable[..., Any]:
    in_order = [one.replace(kind=Parameter.KEYWORD_ONLY) for one in options]
    vars(function)["__signature__"] = Signature(in_order)
    function.__annotations__ = {one.name: one.annotation for one in in_order}
    return function


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
        yield _option("profile", ProfileOption, default=None)


def _option(name: str, annotation: Any, *, default: object) -> Parameter:
    return Parameter(name, Parameter.KEYWORD_ONLY, annotation=annotation, default=default)


def _given(
    names: Set[str], values: Mapping[str, Any], grouped: type[CommandOptions]
) -> dict[str, Any]:
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


def _environment(values: Mapping[str, Any]) -> AbstractContextManager[None]:
    """The environment of a command; a profile's where the command asks name servers."""
    if "profile" not in values:
        return nullcontext()
    from roquet.cli.terminal.profiles import profile_environment

    return profile_environment(values["profile"], values["namesrv"])


def _call(function: Callable[..., Any], arguments: dict[str, Any]) -> Any:
    """Call a function, or run a coroutine; addresses for `admin` become a client."""
    if not iscoroutinefunction(function):
        return function(**arguments)

    from roquet.cli.process import runtime  # here: as above

    async def run() -> Any:
        if "admin" not in arguments:
            return await function(**arguments)
        from roquet.admin.client import AdminClient

        async with AdminClient(arguments["admin"]) as admin:
            return await function(**{**arguments, "admin": admin})

    return runtime.run(run())


def _watch(
    function: Callable[..., Any], arguments: dict[str, Any], seconds: float, *, as_json: bool
) -> None:
    """Call a function again and again until Ctrl-C, which is how this ends."""

    async def look_often(**given: Any) -> None:
        await watch(partial(function, **given), seconds, as_json=as_json)

    with suppress(KeyboardInterrupt):
        _call(look_often, arguments)


def check_extra(extra: str, needed: Sequence[str]) -> None:
    """Raise UsageError when packages of an extra are missing, with the command that installs it."""
    missing = [name for name in needed if find_spec(name.replace("-", "_")) is None]
    if missing:
        raise UsageError(f"{', '.join(missing)} not installed: pip install 'roquet[{extra}]'")
