"""Cloud file systems: those of Azure's and Google's object stores, where pyarrow's wheel has them.

Credentials come from the environment of the process: an account key or a SAS token of Azure, which
pyarrow has to be told of, and whatever else Azure's and Google's libraries find there themselves.
"""

import os
from collections.abc import Mapping
from functools import lru_cache
from typing import Any, Final

import pyarrow.fs as pafs

from roquet.model.errors import ConfigError
from roquet.spark.tables.object_location import (
    ACCOUNT,
    ACCOUNT_KEYS,
    EMULATOR,
    SAS_TOKENS,
    is_true,
)

EMULATOR_ADDRESS: Final = "127.0.0.1:10000"
"""Where Azurite serves blobs."""


@lru_cache(maxsize=8)
def azure_file_system(options: tuple[tuple[str, str], ...]) -> Any:
    """A file system for sorted options; ConfigError where pyarrow has none."""
    return _made("AzureFileSystem", "abfss", azure_arguments(dict(options), os.environ))


@lru_cache(maxsize=1)
def google_file_system() -> Any:
    """A file system of Google Cloud Storage; ConfigError where pyarrow has none."""
    return _made("GcsFileSystem", "gs", {})


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


def _made(name: str, scheme: str, arguments: Mapping[str, Any]) -> Any:
    try:
        kind = getattr(pafs, name)
    except (AttributeError, ImportError) as error:
        raise ConfigError(
            f"this build of pyarrow has no {name}: {scheme}:// needs one that has it, on the "
            "driver and on the workers, or give another place"
        ) from error
    return kind(**arguments)
