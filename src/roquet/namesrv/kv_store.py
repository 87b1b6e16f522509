"""KVStore: key-value settings of operators, saved as Java's kvConfig.json."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final

import msgspec

from roquet.model.errors import ConfigError, FieldError
from roquet.store.filesystem.files import Files
from roquet.wire.fastjson import codec

FILE: Final = "kvConfig.json"

ORDER_NAMESPACE: Final = "ORDER_TOPIC_CONFIG"
"""Namespace of the brokers and queue counts of topics with strict order."""


SIZE_MAX: Final = 16 * 1024 * 1024
"""Characters of all values with their names: a whole namespace is sent in one frame."""

VALUE_SIZE: Final = 256
"""Cost of a value besides its characters."""


class _Saved(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    config_table: dict[str, dict[str, str]] = {}


class KVStore:
    """Values by namespace and key; with real files they survive the process."""

    def __init__(self, directory: Path, files: Files) -> None:
        self._path = directory / FILE
        self._files = files
        self._table = _read(self._path, files)
        self._size = sum(
            _size(namespace, key, value)
            for namespace, values in self._table.items()
            for key, value in values.items()
        )
        self._unsaved = False

    def get(self, namespace: str, key: str) -> str | None:
        """A value; None without one."""
        return self._table.get(namespace, {}).get(key)

    def all(self, namespace: str) -> Mapping[str, str]:
        """All values of a namespace; empty for an unknown one."""
        return self._table.get(namespace, {})

    def put(self, namespace: str, key: str, value: str) -> None:
        """Set a value. FieldError when all values together would exceed SIZE_MAX."""
        before = self._table.get(namespace, {}).get(key)
        size = self._size + _size(namespace, key, value) - _size(namespace, key, before)
        if size > SIZE_MAX:
            raise FieldError(
                f"kept values may have {SIZE_MAX} bytes together, with this one they have {size}: "
                "delete some first"
            )
        self._size = size
        self._table.setdefault(namespace, {})[key] = value
        self._unsaved = True

    def delete(self, namespace: str, key: str) -> None:
        """Delete a value, if it is there."""
        value = self._table.get(namespace, {}).pop(key, None)
        if value is not None:
            self._size -= _size(namespace, key, value)
            self._unsaved = True

    def saving(self) -> Callable[[], None] | None:
        """The work of writing the values to the disk, for a thread; None when nothing changed."""
        if not self._unsaved:
            return None
        saved = _Saved(config_table={name: dict(values) for name, values in self._table.items()})
        self._unsaved = False

        def work() -> None:
            try:
                self._files.replace(self._path, codec.dumps(saved))
            except BaseException:
                self._unsaved = True
                raise

        return work


def _size(namespace: str, key: str, value: str | None) -> int:
    return 0 if value is None else len(namespace) + len(key) + len(value) + VALUE_SIZE


def _read(path: Path, files: Files) -> dict[str, dict[str, str]]:
    try:
        return codec.loads(files.read(path), _Saved).config_table
    except FileNotFoundError:
        return {}
    except FieldError as error:
        raise ConfigError(f"{path} is not a table of values ({error}); mend or move it") from error
