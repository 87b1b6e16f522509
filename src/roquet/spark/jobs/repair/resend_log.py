"""Resends: which letters were sent again, noted before they are sent and when they are.

    DIR/_roquet/resends/0000000003.open    decided: these letters go again
    DIR/_roquet/resends/0000000003.done    all of them have gone

With the first note stands where the queues were when it was made. Whoever finds one without the
second looks there for the copies that have come, and sends the others.
"""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final, Self

import msgspec

from roquet.model.errors import RoquetError, StoreError, StoreLocked
from roquet.spark.queue_offsets import OffsetsJson, TopicIds
from roquet.spark.tables.disk import Disk
from roquet.spark.tables.staging import HIDDEN
from roquet.store.filesystem.directory_lock import FileLock

VERSION: Final = 1


class ResendDecision(msgspec.Struct, frozen=True, kw_only=True):
    """Letters that go again."""

    number: int
    letters: tuple[str, ...]
    ends: OffsetsJson
    """Of the topics that they go to: {topic: {broker: {queue id: offset}}}."""
    topic_ids: dict[str, dict[str, str]] = {}
    """Which topics of their names these were, {topic: {broker: id}}; notes of old have none."""
    version: int = VERSION


class ResendLog:
    """The notes of one table of letters, held by one run."""

    def __init__(self, root: Path, disk: Disk | None = None) -> None:
        self._home = root / HIDDEN / "resends"
        self._disk = disk or Disk()
        self._disk.make(self._home)
        try:
            self._lock = FileLock(self._home.parent / "resending", "another repair")
        except StoreLocked:
            text = f"another repair works on {root}: wait until it has ended"
            raise RoquetError(text) from None

    def open(self) -> list[ResendDecision]:
        """What was decided, and may have gone in part."""
        return [one for one in self._all() if not self._path(one.number, "done").exists()]

    def letters(self) -> set[str]:
        """All letters that have gone, or will."""
        return {letter for one in self._all() for letter in one.letters}

    def decide(self, letters: Sequence[str], ends: OffsetsJson, ids: TopicIds) -> ResendDecision:
        """Note that letters go again; from now on they do."""
        number = max((one.number for one in self._all()), default=0) + 1
        nested: dict[str, dict[str, str]] = {}
        for (topic, broker), topic_id in ids.items():
            nested.setdefault(topic, {})[broker] = topic_id
        made = ResendDecision(number=number, letters=tuple(letters), ends=ends, topic_ids=nested)
        self._disk.create(self._path(number, "open"), msgspec.json.encode(made))
        return made

    def done(self, resend: ResendDecision) -> None:
        """All have gone."""
        if not self._path(resend.number, "done").exists():
            self._disk.create(self._path(resend.number, "done"), b"")

    def close(self) -> None:
        """Let others have it."""
        self._lock.release()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _all(self) -> Iterator[ResendDecision]:
        for path in sorted(self._home.glob("*.open")):
            try:
                found = msgspec.json.decode(path.read_bytes(), type=ResendDecision)
            except msgspec.MsgspecError as error:
                raise StoreError(f"{path} is no note of letters sent again: {error}") from error
            if found.version > VERSION:
                raise StoreError(f"{path} was written by a newer Roquet")
            yield found

    def _path(self, number: int, state: str) -> Path:
        return self._home / f"{number:010}.{state}"
