"""Deleted: topics that were deleted, and how far the log reached then.

Their records stay in the log until they expire. A recovery that finds them again must not give
them queue entries: the topic may have been made anew meanwhile, and its offsets begin at 0 again.
The file is ours alone: a genuine broker passes it over.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Final

import msgspec

from roquet.log_records import logger
from roquet.model.errors import StoreError, StoreFailed
from roquet.store.filesystem.directory_lock import store_error
from roquet.store.filesystem.files import Files

log = logger(__name__)

FILE_NAME: Final = "deleted-topics.json"


class TopicTombstones:
    """Topic to position: records of the topic in front of it are nobody's any more."""

    def __init__(self, files: Files, directory: Path) -> None:
        self._files = files
        self._path = directory / FILE_NAME
        self.positions: dict[bytes, int] = self._read()

    def before(self, topic: str) -> int:
        """Records of a topic in front of this position are deleted; 0 for none."""
        return self.positions.get(topic.encode(), 0) if self.positions else 0

    def note(self, topic: str, end: int) -> None:
        """A topic is deleted, now that the log reaches so far. Durable when this returns.

        Raises StoreError: then the file says what it said before. Raises StoreFailed where even
        that is not sure: a recovery may take the topic for deleted, so nothing more may be stored.
        """
        try:
            self._save(self.positions | {topic.encode(): end})
        except StoreError as error:
            try:
                self._save(self.positions)
            except StoreError:
                raise StoreFailed(*error.args) from error
            raise

    def forget_before(self, begin: int) -> None:
        """The log begins there now: what lay in front of it needs no word any more."""
        left = {topic: end for topic, end in self.positions.items() if end > begin}
        if left != self.positions:
            try:
                self._save(left)
            except StoreError as error:
                log.warning(
                    "words about topics deleted long ago stay until the next time: %s", error
                )

    def limit(self, end: int) -> None:
        """The log ends there: what will be written from there on is not deleted."""
        if any(position > end for position in self.positions.values()):
            self._save({topic: min(at, end) for topic, at in self.positions.items()})

    def _read(self) -> dict[bytes, int]:
        try:
            text = self._files.read(self._path)
        except FileNotFoundError:
            return {}
        except OSError as error:
            raise store_error(self._path, error) from error
        try:
            found = msgspec.json.decode(text, type=dict[str, int])
            return {topic.encode(): end for topic, end in found.items()}
        except (msgspec.MsgspecError, UnicodeError) as error:
            raise StoreError(
                f"{self._path} cannot be read: {error}; remove it, and deleted topics may have"
                " their messages again after a crash"
            ) from error

    def _save(self, positions: Mapping[bytes, int]) -> None:
        named = {topic.decode(): end for topic, end in positions.items()}
        self._files.replace(self._path, msgspec.json.encode(named, order="sorted"))
        self.positions = dict(positions)
