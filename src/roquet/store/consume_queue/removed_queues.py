"""Removed queues: directories of deleted topics, moved away at once and deleted later.

Deleting the files of many queues takes seconds; moving their directory takes one call.
"""

from pathlib import Path
from threading import Lock

from roquet.store.filesystem.files import Files


class RemovedQueues:
    """Directories that wait to be deleted, numbered from 1."""

    def __init__(self, files: Files, directory: Path) -> None:
        self._files = files
        self._directory = directory
        self._clearing = Lock()

    def move_in(self, path: Path) -> None:
        """Move a directory of queues away. Raises StoreError if it cannot be moved."""
        names = self._files.list(self._directory)
        number = len(names) + 1
        while str(number) in names:
            number += 1
        self._files.move(path, self._directory / str(number))

    def clear(self) -> None:
        """Delete what was moved in; may run in another thread."""
        with self._clearing:
            for number in self._files.list(self._directory):
                self._files.remove(self._directory / number)
