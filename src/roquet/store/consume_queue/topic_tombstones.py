"""Topic tombstones: which topics were deleted, and how far the log reached then.

Records of a deleted topic stay in the log until they expire. A recovery that finds them must give
them no queue entries: the topic may have been created again, with offsets from 0 on. Only Roquet
has this file; Apache's broker ignores it.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Final

import msgspec

from roquet.log_records import logger
from roquet.model.errors import StoreError, StoreFailed
from roquet.store.filesystem.files import Files, read_if_exists

log = logger(__name__)

FILE_NAME: Final = "deleted-topics.json"


class TopicTombstones:
    """Topic to position: records of the topic in front of the position are deleted."""

    def __init__(self, files: Files, directory: Path) -> None:
        self._files = files
        self._path = directory / FILE_NAME
        self.positions: dict[bytes, int] = self._read()

    def position_of(self, topic: str) -> int:
        """Records of a topic in front of this position are deleted; 0 for none."""
        return self.positions.get(topic.encode(), 0) if self.positions else 0

    def add(self, topic: str, end: int) -> None:
        """Note that a topic is deleted, at the log's end. Durable when this returns.

        Raises StoreError: then the file is as before. Raises StoreFailed where even that is not
        certain: a recovery may take the topic for deleted, so nothing more may be stored.
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
        """Drop tombstones in front of `begin`, where the log begins now."""
        left = {topic: end for topic, end in self.positions.items() if end > begin}
        if left != self.positions:
            try:
                self._save(left)
            except StoreError as error:
                log.warning(
                    "tombstones of topics deleted long ago stay until the next time: %s", error
                )

    def limit(self, end: int) -> None:
        """Lower positions to the log's end: records written from there on are not deleted."""
        if any(position > end for position in self.positions.values()):
            self._save({topic: min(at, end) for topic, at in self.positions.items()})

    def _read(self) -> dict[bytes, int]:
        if (text := read_if_exists(self._files, self._path)) is None:
            return {}
        try:
            positions = msgspec.json.decode(text, type=dict[str, int])
            return {topic.encode(): end for topic, end in positions.items()}
        except (msgspec.MsgspecError, UnicodeError, RecursionError) as error:
            raise StoreError(
                f"{self._path} cannot be read: {error}; remove it, and deleted topics may have"
                " their messages again after a crash"
            ) from error

    def _save(self, positions: Mapping[bytes, int]) -> None:
        named = {topic.decode(): end for topic, end in positions.items()}
        self._files.replace(self._path, msgspec.json.encode(named, order="sorted"))
        self.positions = dict(positions)
