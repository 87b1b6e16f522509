"""Cloud file systems: those of Azure's and Google's object stores, where pyarrow's wheel has them.

Credentials come from the environment of the process: an account key or a SAS token of Azure, which
pyarrow has to be told of, and whatever else Azure's and Google's libraries find there themselves.
"""

import os
from collections.abc import Mapping
from datetime import timedelta
from functools import lru_cache
from typing import Any, Final
from urllib.parse import urlsplit

import pyarrow.fs as pafs

from roquet.lake.objects.object_location import (
    ACCOUNT,
    ACCOUNT_KEYS,
    EMULATOR,
    GOOGLE_EMULATOR,
    PYARROW_EMULATOR,
    SAS_TOKENS,
    emulator_url,
    is_true,
)
from roquet.model.errors import ConfigError

EMULATOR_ADDRESS: Final = "127.0.0.1:10000"
"""Where Azurite serves blobs."""

GOOGLE_RETRY_S: Final = 30
"""How long Google's library repeats a request that fails: five times or more, with growing pauses.
By itself it goes on for 15 minutes, also where it looks for credentials and there are none."""


@lru_cache(maxsize=8)
def azure_file_system(options: tuple[tuple[str, str], ...]) -> Any:
    """A file system for sorted options; ConfigError where pyarrow has none."""
    return _made("AzureFileSystem", "abfss", azure_arguments(dict(options), os.environ))


@lru_cache(maxsize=8)
def google_file_system(options: tuple[tuple[str, str], ...]) -> Any:
    """A file system for sorted options; ConfigError where pyarrow has none."""
    return _made("GcsFileSystem", "gs", google_arguments(dict(options), os.environ))


def azure_arguments(options: Mapping[str, str], environ: Mapping[str, str]) -> dict[str, Any]:
    """The arguments of pyarrow's file system: the account, and a key or a token that is set."""
    arguments: dict[str, Any] = {"account_name": options[ACCOUNT]}
    key = next((environ[name] for name in ACCOUNT_KEYS if environ.get(name)), None)
    token = next((environ[name] for name in SAS_TOKENS if environ.get(name)), None)
    if key is not None:
        arguments["account_key"] = key
    elif token is not None:
        arguments["sas_token"] = f"?{token.removeprefix('?')}"
    if is_true(options, EMULATOR):
        for service in ("blob", "dfs"):
            arguments |= {
                f"{service}_storage_authority": EMULATOR_ADDRESS,
                f"{service}_storage_scheme": "http",
            }
    return arguments


def google_arguments(options: Mapping[str, str], environ: Mapping[str, str]) -> dict[str, Any]:
    """The arguments of pyarrow's file system; an emulator gets no credentials."""
    arguments: dict[str, Any] = {"retry_time_limit": timedelta(seconds=GOOGLE_RETRY_S)}
    url, other = options.get(GOOGLE_EMULATOR), environ.get(PYARROW_EMULATOR)
    if other and url != emulator_url(other):
        # Unseen, half of the requests would go to each.
        raise ConfigError(
            f"{PYARROW_EMULATOR} in the environment is not {GOOGLE_EMULATOR}: unset it, on the "
            "driver and on the workers"
        )
    if url:
        endpoint = urlsplit(url)
        arguments |= {"anonymous": True, "scheme": endpoint.scheme}
        arguments["endpoint_override"] = endpoint.netloc
    return arguments


def _made(name: str, scheme: str, arguments: Mapping[str, Any]) -> Any:
    try:
        kind = getattr(pafs, name)
    except (AttributeError, ImportError) as error:
        raise ConfigError(
            f"this build of pyarrow has no {name}: {scheme}:// needs one that has it, on the "
            "driver and on the workers, or give another place"
        ) from error
    return kind(**arguments)
