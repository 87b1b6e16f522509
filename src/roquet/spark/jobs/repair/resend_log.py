"""Resend log: which letters were sent again, noted before they are sent and again when all were.

    DIR/_roquet/resends/0000000003.open    decided: these letters are to be sent
    DIR/_roquet/resends/0000000003.done    all of them were sent

The first note also has the ends of the destination's queues at that time. A run that finds it
without the second looks for copies from there on, and sends the letters that have none.
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
    """The decision to send letters again; the JSON content of an `.open` file."""

    number: int
    letters: tuple[str, ...]
    """Ids of the letters."""
    ends: OffsetsJson
    """Ends of the destination's queues: {topic: {broker: {queue id: offset}}}."""
    topic_ids: dict[str, dict[str, str]] = {}
    """Ids of the destination topics, {topic: {broker: id}}; empty in notes of older versions."""
    version: int = VERSION


class ResendLog:
    """The notes of one table of letters, locked for one run."""

    def __init__(self, root: Path, disk: Disk | None = None) -> None:
        self._directory = root / HIDDEN / "resends"
        self._disk = disk or Disk()
        self._disk.make(self._directory)
        try:
            self._lock = FileLock(self._directory.parent / "resending", "another repair")
        except StoreLocked:
            text = f"another repair works on {root}: wait until it has ended"
            raise RoquetError(text) from None

    def open(self) -> list[ResendDecision]:
        """The decisions whose letters may not all have been sent."""
        return [each for each in self._all() if not self._path(each.number, "done").exists()]

    def letters(self) -> set[str]:
        """The ids of all letters that were sent or are decided on."""
        return {letter for decision in self._all() for letter in decision.letters}

    def decide(
        self, letters: Sequence[str], ends: OffsetsJson, topic_ids: TopicIds
    ) -> ResendDecision:
        """Note the decision to send letters; from then on they count as sent."""
        number = max((decision.number for decision in self._all()), default=0) + 1
        nested: dict[str, dict[str, str]] = {}
        for (topic, broker), topic_id in topic_ids.items():
            nested.setdefault(topic, {})[broker] = topic_id
        decision = ResendDecision(
            number=number, letters=tuple(letters), ends=ends, topic_ids=nested
        )
        self._disk.create(self._path(number, "open"), msgspec.json.encode(decision))
        return decision

    def done(self, decision: ResendDecision) -> None:
        """Note that all letters of a decision were sent."""
        if not self._path(decision.number, "done").exists():
            self._disk.create(self._path(decision.number, "done"), b"")

    def close(self) -> None:
        """Release the lock."""
        self._lock.release()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _all(self) -> Iterator[ResendDecision]:
        for path in sorted(self._directory.glob("*.open")):
            try:
                decision = msgspec.json.decode(path.read_bytes(), type=ResendDecision)
            except msgspec.MsgspecError as error:
                raise StoreError(f"{path} is no note of letters sent again: {error}") from error
            if decision.version > VERSION:
                raise StoreError(f"{path} was written by a newer Roquet")
            yield decision

    def _path(self, number: int, state: str) -> Path:
        return self._directory / f"{number:010}.{state}"
