"""roquet profile: clusters by name, so that commands need no addresses, TLS files and keys."""

import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any, Final

import msgspec
import typer

from roquet.cli.command_options import CommandOptions, argument, option
from roquet.cli.operator_command import Approval, CommandGroup, Result
from roquet.cli.terminal import arguments, profiles
from roquet.cli.terminal.arguments import DEV_NAMESRV, namesrv_addresses
from roquet.cli.terminal.output import table
from roquet.cli.terminal.profiles import Profile
from roquet.cli.terminal.secret_input import secret_line
from roquet.model.errors import UsageError

app: Final = CommandGroup("profile", "Clusters by name: their addresses, TLS files and keys.")

NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")

FILES: Final = ("tls_ca", "tls_cert", "tls_key", "secret_key_file")
SECRETS: Final = ("secret_key", "secret_key_file", "secret_key_command")

HIDDEN: Final = "(hidden)"

ProfileArgument = Annotated[
    str, typer.Argument(help="The profile's name.", autocompletion=arguments.complete_profiles)
]


class ProfileOptions(CommandOptions):
    """Settings of a profile; an empty text takes one away."""

    namesrv: str | None = option("The name servers.", "--namesrv", "-n", metavar="HOST:PORT[;...]")
    tls: bool | None = option("Whether to speak TLS without any file.")
    tls_ca: str | None = option("Certificates to trust.", metavar="FILE")
    tls_cert: str | None = option("This client's certificate.", metavar="FILE")
    tls_key: str | None = option("The certificate's key.", metavar="FILE")
    tls_server_name: str | None = option("The name in the servers' certificates.", metavar="HOST")
    access_key: str | None = option("The user to sign as.", metavar="USER")
    secret_key_file: str | None = option(
        "File whose first line is the secret key; - reads it from stdin now, and keeps it.",
        metavar="FILE",
    )
    secret_key_command: str | None = option(
        "Command that prints the secret key whenever it is needed.", metavar="COMMAND"
    )


@app.command("set")
def set_profile(name: ProfileArgument, options: ProfileOptions) -> Result:
    """Make a profile, or change it: what is not given stays.

    A secret never stands on a command line: say in which file it is, or which command prints it.
    """
    if not NAME.fullmatch(name):
        raise UsageError(f"profile {name!r}: letters, digits, dots, dashes and underscores")
    file = profiles.load()
    known = msgspec.to_builtins(file.profiles[name]) if name in file.profiles else {}
    values = {**known, **_changes(options)}
    try:
        profile = msgspec.convert({k: v for k, v in values.items() if v}, Profile)
    except msgspec.ValidationError:
        raise UsageError(f"profile {name!r} is new: --namesrv says which cluster it is") from None
    if profile.access_key and not any(values.get(key) for key in SECRETS):
        raise UsageError("an access key needs its secret: --secret-key-file, --secret-key-command")
    file.profiles[name] = profile
    profiles.save(file)
    line = f"{name}: saved in {profiles.path()}"
    hint = f"`roquet profile use {name}` makes it the current one, --profile {name} names it"
    return Result(json=[_fields(name, profile)], text=[line], hints=[hint])


@app.command("ls")
def list_profiles() -> Result:
    """List the profiles; the current one has a star."""
    file = profiles.load()
    rows = (
        ("*" if name == file.current else "", name, one.namesrv, one.access_key, _tls_text(one))
        for name, one in sorted(file.profiles.items())
    )
    return Result(
        json=[
            {**_fields(name, one), "is_current": name == file.current}
            for name, one in sorted(file.profiles.items())
        ],
        text=[table(("", "profile", "name servers", "user", "TLS"), rows)]
        if file.profiles
        else ["no profile"],
    )


@app.command()
def show(
    name: str | None = argument("The profile's name.", autocompletion=arguments.complete_profiles),
) -> Result:
    """Show which name servers, TLS files and keys commands use here, and where each is from.

    With a name, as with --profile of that name.
    """
    choice = profiles.choose(name, None, os.environ)
    rows = list(_effective(choice))
    current = (
        f"profile {choice.name}, in {profiles.path()}" if choice.name else "no profile is used"
    )
    fields = {setting: {"value": value, "from": source} for setting, value, source in rows}
    return Result(
        json=[{"profile": choice.name, "settings": fields}],
        text=[current, table(("setting", "value", "from"), rows)],
    )


@app.command()
def use(
    name: str | None = argument("The profile's name.", autocompletion=arguments.complete_profiles),
    none: bool = option("Use none."),
) -> Result:
    """Make a profile the current one: commands use it without --profile."""
    if (name is None) is not none:
        raise UsageError("say which: a profile's name, or --none")
    file = profiles.load()
    if name is not None:
        file.known(name)
    file.current = name
    profiles.save(file)
    return Result(json=[{"current": name}], text=[f"{name or 'no profile'} is the current one"])


@app.command("rm")
async def remove(approval: Approval, name: ProfileArgument) -> Result:
    """Remove a profile with its keys."""
    file = profiles.load()
    profile = file.known(name)
    if await approval.ask([f"{name}: {profile.namesrv}"], f"Remove profile {name}?"):
        del file.profiles[name]
        file.current = None if file.current == name else file.current
        profiles.save(file)
    return approval.result([{"name": name}], f"{name}: removed")


def _changes(options: ProfileOptions) -> dict[str, str]:
    """The settings that options give; one place of the secret takes the others away."""
    given = {one.name: getattr(options, one.name) for one in options.declared()}
    values = {key: value for key, value in given.items() if value is not None}
    if values.get("namesrv"):
        values["namesrv"] = namesrv_addresses(values["namesrv"])
    if "tls" in values:
        values["tls"] = str(values["tls"]).lower()
    if any(values.get(key) for key in SECRETS) or values.get("access_key") == "":
        values = {**dict.fromkeys(SECRETS, ""), **values}
    if values.get("secret_key_file") == "-":
        values |= {"secret_key_file": "", "secret_key": secret_line(Path("-"))}
    for key in FILES:
        if values.get(key):
            values[key] = str(Path(values[key]).expanduser().absolute())
            if not Path(values[key]).is_file():
                raise UsageError(f"--{key.replace('_', '-')}: there is no file {values[key]}")
    return values


def _fields(name: str, profile: Profile) -> dict[str, Any]:
    """A profile for JSON, without its secret."""
    values = msgspec.to_builtins(profile)
    return {"name": name, **values, **({"secret_key": HIDDEN} if profile.secret_key else {})}


def _tls_text(profile: Profile) -> str:
    has_files = profile.tls_ca or profile.tls_cert
    return "yes" if profile.tls == "true" or (has_files and profile.tls != "false") else "no"


def _effective(choice: profiles.Choice) -> Iterator[tuple[str, str, str]]:
    """Settings that commands use: name, value and where it is from; secrets are hidden."""
    for setting, variable in (pair for group in profiles.GROUPS for pair in group.items()):
        source = choice.sources.get(variable, f"environment {variable}")
        value = choice.environ.get(variable)
        if setting == "namesrv" and not value:
            yield setting, DEV_NAMESRV, "default"
        elif value:
            yield setting, HIDDEN if setting in {"secret_key", "security_token"} else value, source
    if choice.name and profiles.KEYS["access_key"] in choice.sources:
        profile = profiles.load().known(choice.name)
        for place in ("secret_key_file", "secret_key_command"):
            if value := getattr(profile, place):
                yield place, value, f"profile {choice.name}"
