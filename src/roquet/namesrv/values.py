"""Named values that operators keep in the name server, saved as Java's kvConfig.json."""

from collections.abc import Mapping
from pathlib import Path
from typing import Final

import msgspec

from roquet.model.errors import ConfigError, FieldError
from roquet.store.files import Files
from roquet.wire import dialect

FILE: Final = "kvConfig.json"

ORDER_NAMESPACE: Final = "ORDER_TOPIC_CONFIG"
"""Where a topic's brokers and queue counts stand, for topics that want strict order."""


class _Saved(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    config_table: dict[str, dict[str, str]] = {}


class Values:
    """Values by namespace and name; real files let them outlive the process."""

    def __init__(self, directory: Path, files: Files) -> None:
        self._path = directory / FILE
        self._files = files
        self._table = _read(self._path, files)

    def get(self, namespace: str, key: str) -> str | None:
        """One value."""
        return self._table.get(namespace, {}).get(key)

    def all(self, namespace: str) -> Mapping[str, str]:
        """All values of a namespace; none when nobody ever used it."""
        return self._table.get(namespace, {})

    def put(self, namespace: str, key: str, value: str) -> None:
        """Keeps a value."""
        self._table.setdefault(namespace, {})[key] = value
        self._save()

    def delete(self, namespace: str, key: str) -> None:
        """Forgets a value; one that is not there is forgotten already."""
        if self._table.get(namespace, {}).pop(key, None) is not None:
            self._save()

    def _save(self) -> None:
        self._files.replace(self._path, dialect.dumps(_Saved(config_table=self._table)))


def _read(path: Path, files: Files) -> dict[str, dict[str, str]]:
    try:
        return dialect.loads(files.read(path), _Saved).config_table
    except FileNotFoundError:
        return {}
    except FieldError as error:
        raise ConfigError(f"{path} is not a table of values ({error}); mend or move it") from error
