"""Profiles: clusters by name, with their name servers, TLS files and keys, in a private file.

    {"current": "dev", "profiles": {"dev": {"namesrv": "10.0.0.5:9876", "access_key": "alice", …}}}

A profile stands for environment variables that are not set. They come in three groups, and each
group is taken whole from one place, so that no key meets the secret of another user:

    --profile NAME      before the environment
    ROQUET_PROFILE      behind it
    the current one     behind it, and not at all where --namesrv or NAMESRV_ADDR is given: it may
                        be another cluster's
"""

import os
import shlex
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

import msgspec
import typer

from roquet.cli.terminal.secret_input import secret_line
from roquet.client.config import NAMESRV_VARIABLE
from roquet.client.connection import security
from roquet.model.errors import CallTimeout, ConfigError, ConnectFailed, UsageError
from roquet.model.settings import suggest
from roquet.store.filesystem.private_files import make_directories, open_private

CHOICE: Final = "ROQUET_PROFILE"

ADDRESSES: Final = {"namesrv": NAMESRV_VARIABLE}
TLS: Final = {
    "tls": security.TLS_VARIABLE,
    "tls_ca": security.TLS_CA_VARIABLE,
    "tls_cert": security.TLS_CERT_VARIABLE,
    "tls_key": security.TLS_KEY_VARIABLE,
    "tls_server_name": security.TLS_SERVER_NAME_VARIABLE,
}
KEYS: Final = {
    "access_key": security.ACCESS_KEY_VARIABLE,
    "secret_key": security.SECRET_KEY_VARIABLE,
    "security_token": security.SECURITY_TOKEN_VARIABLE,
}
GROUPS: Final = (ADDRESSES, TLS, KEYS)
"""Variables by setting; those of a group belong together."""

COMMAND_TIMEOUT_S: Final = 60.0
"""A command that prints a secret may ask the user for a passphrase."""


class Profile(msgspec.Struct, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """How one cluster is reached; None is not set."""

    namesrv: str
    tls: str | None = None
    tls_ca: str | None = None
    tls_cert: str | None = None
    tls_key: str | None = None
    tls_server_name: str | None = None
    access_key: str | None = None
    secret_key: str | None = None
    secret_key_file: str | None = None
    """The secret is the file's first line."""
    secret_key_command: str | None = None
    """The secret is the first line that the command prints."""

    def secret(self) -> str | None:
        """The secret key, wherever it is kept.

        Raises ConfigError or UsageError, or OSError for its file.
        """
        if self.secret_key_file is not None:
            return secret_line(Path(self.secret_key_file))
        if self.secret_key_command is not None:
            return _printed(self.secret_key_command).partition("\n")[0].strip()
        return self.secret_key


class ProfileFile(msgspec.Struct, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """All profiles, and the name of the one that is used when none is named."""

    current: str | None = None
    profiles: dict[str, Profile] = {}

    def known(self, name: str) -> Profile:
        """The profile of a name. Raises UsageError for an unknown one."""
        if name in self.profiles:
            return self.profiles[name]
        hint = suggest(name, self.profiles) or "; `roquet profile set` makes one"
        raise UsageError(f"there is no profile {name!r}{hint}")


class Choice(msgspec.Struct, frozen=True, kw_only=True):
    """The profile that a command uses, and the environment with it."""

    name: str | None
    environ: Mapping[str, str]
    sources: Mapping[str, str]
    """Where each variable comes from."""


def path() -> Path:
    """The file of this user's profiles."""
    return Path(typer.get_app_dir("roquet")) / "profiles.json"


def load() -> ProfileFile:
    """The profiles; without a file there are none. Raises ConfigError for a damaged file."""
    try:
        return msgspec.json.decode(path().read_bytes(), type=ProfileFile)
    except FileNotFoundError:
        return ProfileFile()
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path()}: {error}; mend the file, or remove it") from None


def save(file: ProfileFile) -> None:
    """Replace the file; only its owner may read it."""
    make_directories(path().parent)
    draft = path().with_suffix(".new")
    with suppress(FileNotFoundError):
        draft.unlink()
    with open(draft, "xb", opener=open_private) as made:
        made.write(msgspec.json.format(msgspec.json.encode(file)) + b"\n")
    draft.replace(path())


def choose(option: str | None, namesrv: str | None, environ: Mapping[str, str]) -> Choice:
    """The profile of a command with these options, and the environment with it; no secret yet.

    Raises UsageError for a profile that there is not.
    """
    name = option or environ.get(CHOICE)
    if not name and (namesrv or environ.get(NAMESRV_VARIABLE)):
        return Choice(name=None, environ=environ, sources={})
    file = load()
    if not (name := name or file.current):
        return Choice(name=None, environ=environ, sources={})
    result = dict(environ)
    sources: dict[str, str] = {}
    values = msgspec.to_builtins(file.known(name))
    for group in GROUPS:
        own = {variable: values[key] for key, variable in group.items() if key in values}
        if own and (option or not any(environ.get(variable) for variable in group.values())):
            for variable in group.values():
                result.pop(variable, None)
            result |= own
            sources |= dict.fromkeys(own, f"profile {name}")
    return Choice(name=name, environ=result, sources=sources)


@contextmanager
def profile_environment(
    option: str | None, namesrv: str | None, *, may_run: bool = True
) -> Iterator[None]:
    """The environment of a command while it runs; errors say where its name servers come from.

    Without `may_run` a profile whose secret key a command prints raises ConfigError.
    """
    before = dict(os.environ)
    choice = choose(option, namesrv, before)
    try:
        _set_variables({**choice.environ, **_secret(choice, may_run=may_run)})
        yield
    except (ConnectFailed, CallTimeout) as error:
        raise type(error)(f"{error}{_origin(choice, namesrv)}") from error
    finally:
        _set_variables(before)


def _set_variables(environ: Mapping[str, str]) -> None:
    for variable in (name for group in GROUPS for name in group.values()):
        os.environ.pop(variable, None)
        if variable in environ:
            try:
                os.environ[variable] = environ[variable]
            except ValueError:  # NUL, or what the encoding of this machine lacks
                raise ConfigError(f"{variable}: its value has characters it cannot have") from None


def _secret(choice: Choice, *, may_run: bool) -> dict[str, str]:
    """The variable with the secret key, where the keys are the profile's."""
    if choice.name is None or security.ACCESS_KEY_VARIABLE not in choice.sources:
        return {}
    profile = load().known(choice.name)
    if profile.secret_key_command is not None and not may_run:
        raise ConfigError(f"profile {choice.name}: its secret key needs a command")
    secret = profile.secret()
    if not secret:
        raise ConfigError(f"profile {choice.name}: there is no secret key where it says")
    return {security.SECRET_KEY_VARIABLE: secret}


def _origin(choice: Choice, namesrv: str | None) -> str:
    """A line that says where the name servers come from; none for --namesrv."""
    if namesrv:
        return ""
    if NAMESRV_VARIABLE in choice.sources:
        return f"\nthe name servers are those of profile {choice.name}, in {path()}"
    if choice.environ.get(NAMESRV_VARIABLE):
        return f"\nthe name servers are those of {NAMESRV_VARIABLE}"
    return f"\nno --namesrv, {NAMESRV_VARIABLE} or profile says which name servers to ask"


def _printed(command: str) -> str:
    """Stdout of a command. Raises ConfigError when it fails."""
    try:
        ended = subprocess.run(
            shlex.split(command), stdout=subprocess.PIPE, text=True, timeout=COMMAND_TIMEOUT_S,
            check=True,
        )  # fmt: skip
    except (OSError, ValueError, subprocess.SubprocessError) as error:
        raise ConfigError(f"secret_key_command: {error}") from None
    except IndexError:
        raise ConfigError("secret_key_command: it is blank") from None
    return ended.stdout
