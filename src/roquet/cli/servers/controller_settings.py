"""Settings of a controller from a file and from a command's options."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import msgspec

from roquet.controller.config import MEMORY_STORE, ControllerConfig
from roquet.controller.settings import read_settings
from roquet.model.errors import ConfigError, FieldError
from roquet.net.tls_properties import take_tls
from roquet.wire.properties_file import read_properties

DEFAULT_STORE: Final = "file:roquet-controller"
"""Directory of a controller's state, below the working directory."""


def load_settings(path: Path) -> ControllerConfig:
    """The settings of a file with Apache's keys or ours. Raises ConfigError."""
    values, tls = take_tls(read_file(path), str(path))
    loaded = read_settings(values, str(path))
    return msgspec.structs.replace(loaded, tls=tls.server, calls=tls.calls)


def read_file(path: Path) -> dict[str, str]:
    """Keys and values of a properties file. Raises ConfigError."""
    try:
        return read_properties(path.read_text("utf-8"))
    except (OSError, UnicodeDecodeError, FieldError) as error:
        raise ConfigError(f"{path}: cannot be read: {error}") from None


def configured(loaded: ControllerConfig, options: Mapping[str, Any]) -> ControllerConfig:
    """The settings of a file with those of options, which win; None was not given.

    A store that nobody named survives a restart.
    """
    chosen = {name: value for name, value in options.items() if value is not None}
    if loaded.store == MEMORY_STORE:
        chosen.setdefault("store", DEFAULT_STORE)
    return msgspec.structs.replace(loaded, **chosen)
