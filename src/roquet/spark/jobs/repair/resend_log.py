"""Resend log: which letters were sent again, noted before they are sent and again when all were.

    DIR/_roquet/resends/0000000003.open    decided: these letters are to be sent
    DIR/_roquet/resends/0000000003.done    all of them were sent

The first note also has the ends of the destination's queues at that time. A run that finds it
without the second looks for copies from there on, and sends the letters that have none. One run at
a time works with a log: by a lock in a directory, by a lease in an object store.
"""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final, Self

import msgspec

from roquet.lake.files.staging import HIDDEN
from roquet.lake.journal.journal import DirectoryJournal, Journal
from roquet.lake.journal.object_journal import ObjectJournal
from roquet.lake.journal.object_lease import ObjectLease
from roquet.lake.objects.object_location import ObjectLocation, TableLocation
from roquet.lake.queue_offsets import OffsetsJson, TopicIds
from roquet.model.errors import RoquetError, StoreError, StoreLocked
from roquet.store.filesystem.directory_lock import FileLock

VERSION: Final = 1

RESENDS: Final = "resends"


class ResendDecision(msgspec.Struct, frozen=True, kw_only=True):
    """The decision to send letters again; the JSON content of an `.open` note."""

    number: int
    letters: tuple[str, ...]
    """Ids of the letters."""
    ends: OffsetsJson
    """Ends of the destination's queues: {topic: {broker: {queue id: offset}}}."""
    topic_ids: dict[str, dict[str, str]] = {}
    """Ids of the destination topics, {topic: {broker: id}}; empty in notes of older versions."""
    version: int = VERSION


class ResendLog:
    """The notes of one table of letters, held for one run."""

    def __init__(self, root: TableLocation) -> None:
        self._journal: Journal
        self._lock: _DirectoryLock | ObjectLease
        if isinstance(root, Path):
            self._journal, self._lock = _directory_journal(root), _DirectoryLock(root)
            self._journal.make()
        else:
            journal = _object_journal(root)
            self._journal, self._lock = journal, ObjectLease(journal, f"another repair of {root}")

    def open(self) -> list[ResendDecision]:
        """The decisions whose letters may not all have been sent."""
        names = {*self._journal.names()}
        return [
            each for each in _decisions(self._journal) if _name(each.number, "done") not in names
        ]

    def letters(self) -> set[str]:
        """The ids of all letters that were sent or are decided on."""
        return {letter for decision in _decisions(self._journal) for letter in decision.letters}

    def decide(
        self, letters: Sequence[str], ends: OffsetsJson, topic_ids: TopicIds
    ) -> ResendDecision:
        """Note the decision to send letters; from then on they count as sent."""
        number = max((decision.number for decision in _decisions(self._journal)), default=0) + 1
        nested: dict[str, dict[str, str]] = {}
        for (topic, broker), topic_id in topic_ids.items():
            nested.setdefault(topic, {})[broker] = topic_id
        decision = ResendDecision(
            number=number, letters=tuple(letters), ends=ends, topic_ids=nested
        )
        self._add(_name(number, "open"), msgspec.json.encode(decision))
        return decision

    def hold(self) -> None:
        """Raise RoquetError when another run may send the same letters; call it before sending."""
        self._lock.hold()

    def done(self, decision: ResendDecision) -> None:
        """Note that all letters of a decision were sent."""
        if _name(decision.number, "done") not in self._journal.names():
            self._add(_name(decision.number, "done"), b"")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._lock.close()

    def _add(self, name: str, data: bytes) -> None:
        self._lock.hold()
        self._journal.change({name: data})


class _DirectoryLock:
    """A lock in the directory of a table, which ends with its process."""

    def __init__(self, root: Path) -> None:
        try:
            self._lock = FileLock(root / HIDDEN / "resending", "another repair")
        except StoreLocked:
            text = f"another repair works on {root}: wait until it has ended"
            raise RoquetError(text) from None

    def hold(self) -> None:
        """Do nothing: the lock stays until its process has ended."""

    def close(self) -> None:
        """Release the lock."""
        self._lock.release()


def resent_letters(root: TableLocation) -> set[str]:
    """The ids of all letters that were sent or are decided on, while a run may go on."""
    journal = _directory_journal(root) if isinstance(root, Path) else _object_journal(root)
    journal.read()
    return {letter for decision in _decisions(journal) for letter in decision.letters}


def _decisions(journal: Journal) -> Iterator[ResendDecision]:
    for name in journal.names():
        if not name.endswith(".open"):
            continue
        where = journal.address(name)
        try:
            decision = msgspec.json.decode(journal.content(name), type=ResendDecision)
        except msgspec.MsgspecError as error:
            raise StoreError(f"{where} is no note of letters sent again: {error}") from error
        if decision.version > VERSION:
            raise StoreError(f"{where} was written by a newer Roquet")
        yield decision


def _directory_journal(root: Path) -> DirectoryJournal:
    return DirectoryJournal(root / HIDDEN / RESENDS, "note of letters")


def _object_journal(root: ObjectLocation) -> ObjectJournal:
    return ObjectJournal(msgspec.structs.replace(root, url=root.file(f"{HIDDEN}/{RESENDS}")))


def _name(number: int, state: str) -> str:
    return f"{number:010}.{state}"
