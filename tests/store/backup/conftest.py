"""A store in real files, which a backup reads while it is open."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.store.conftest import NOW, DataDir

from roquet.store.store import Store


class OpenStore:
    """A store that is in use, its directory, and a directory for backups."""

    def __init__(self, path: Path, layout: DataDir) -> None:
        self.directory = path / "data"
        self.backups = path / "backups"
        self.restored = path / "restored"
        self.config = layout.config
        self.store = self.open(self.directory)

    def open(self, directory: Path) -> Store:
        return Store.open(directory, self.config, now_ms=NOW, pid=7)


@pytest.fixture
def in_use(tmp_path: Path, store_dir: DataDir) -> Iterator[OpenStore]:
    opened = OpenStore(tmp_path, store_dir)
    yield opened
    opened.store.close(NOW)
