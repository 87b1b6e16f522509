"""Resend log: which letters were sent again, noted before they are sent and again when all were.

    DIR/_roquet/resends/0000000003.open    decided: these letters are to be sent
    DIR/_roquet/resends/0000000003.done    all of them were sent

The first note also has the ends of the destination's queues at that time. A run that finds it
without the second looks for copies from there on, and sends the letters that have none. One run at
a time works with a log: by a lock in a directory, by a lease in an object store.
"""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final, Protocol, Self

import msgspec

from roquet.lake.files.disk import Disk
from roquet.lake.files.staging import HIDDEN
from roquet.lake.journal.object_journal import ObjectJournal
from roquet.lake.journal.object_lease import LEASE, ObjectLease
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


class ResendNotes(Protocol):
    """The notes of one table of letters, by their names."""

    def names(self) -> list[str]:
        """The sorted names."""

    def content(self, name: str) -> bytes:
        """The content of a note."""

    def add(self, name: str, data: bytes) -> None:
        """Add a note, durably; RoquetError when there is one of this name."""

    def hold(self) -> None:
        """Raise RoquetError when another run may work with the notes."""

    def close(self) -> None:
        """Let other runs work with the notes."""


class ResendLog:
    """The notes of one table of letters, held for one run."""

    def __init__(self, root: TableLocation, disk: Disk | None = None) -> None:
        self._root = root
        self._notes: ResendNotes = (
            DirectoryNotes(root, disk or Disk()) if isinstance(root, Path) else ObjectNotes(root)
        )

    def open(self) -> list[ResendDecision]:
        """The decisions whose letters may not all have been sent."""
        names = {*self._notes.names()}
        return [each for each in self._all() if _name(each.number, "done") not in names]

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
        self._notes.add(_name(number, "open"), msgspec.json.encode(decision))
        return decision

    def hold(self) -> None:
        """Raise RoquetError when another run may send the same letters; call it before sending."""
        self._notes.hold()

    def done(self, decision: ResendDecision) -> None:
        """Note that all letters of a decision were sent."""
        if _name(decision.number, "done") not in self._notes.names():
            self._notes.add(_name(decision.number, "done"), b"")

    def close(self) -> None:
        """Let other runs work with the log."""
        self._notes.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _all(self) -> Iterator[ResendDecision]:
        return _decisions(self._notes, self._root)


class DirectoryNotes:
    """Notes in a directory, which a run locks."""

    def __init__(self, root: Path, disk: Disk) -> None:
        self._directory = root / HIDDEN / RESENDS
        self._disk = disk
        self._disk.make(self._directory)
        try:
            self._lock = FileLock(self._directory.parent / "resending", "another repair")
        except StoreLocked:
            text = f"another repair works on {root}: wait until it has ended"
            raise RoquetError(text) from None

    def names(self) -> list[str]:
        """The sorted names."""
        return sorted(path.name for path in self._directory.iterdir())

    def content(self, name: str) -> bytes:
        """The content of a note."""
        return (self._directory / name).read_bytes()

    def add(self, name: str, data: bytes) -> None:
        """Add a note, durably."""
        self._disk.create(self._directory / name, data)

    def hold(self) -> None:
        """Do nothing: a lock stays until its process has ended."""

    def close(self) -> None:
        """Release the lock."""
        self._lock.release()


class ObjectNotes:
    """Notes in an object store, with a lease that a run renews."""

    def __init__(self, root: ObjectLocation) -> None:
        self._journal = _journal(root)
        self._lease = ObjectLease(self._journal, f"another repair of {root}")

    def names(self) -> list[str]:
        """The sorted names."""
        return [name for name in self._journal.names() if name != LEASE]

    def content(self, name: str) -> bytes:
        """The content of a note."""
        return self._journal.content(name)

    def add(self, name: str, data: bytes) -> None:
        """Add a note; JournalConflict when another run has added one."""
        self._lease.hold()
        self._journal.change({name: data})

    def hold(self) -> None:
        """Renew the lease; LeaseHeld when it may have ended."""
        self._lease.hold()

    def close(self) -> None:
        """End the lease."""
        self._lease.close()


def resent_letters(root: TableLocation) -> set[str]:
    """The ids of all letters that were sent or are decided on, while a run may go on."""
    if isinstance(root, Path):
        with ResendLog(root) as resend_log:
            return resend_log.letters()
    journal = _journal(root)
    journal.read()
    return {letter for decision in _decisions(journal, root) for letter in decision.letters}


class _ReadableNotes(Protocol):
    def names(self) -> list[str]: ...

    def content(self, name: str) -> bytes: ...


def _decisions(notes: _ReadableNotes, root: TableLocation) -> Iterator[ResendDecision]:
    for name in notes.names():
        if not name.endswith(".open"):
            continue
        where = f"{root}/{HIDDEN}/{RESENDS}/{name}"
        try:
            decision = msgspec.json.decode(notes.content(name), type=ResendDecision)
        except msgspec.MsgspecError as error:
            raise StoreError(f"{where} is no note of letters sent again: {error}") from error
        if decision.version > VERSION:
            raise StoreError(f"{where} was written by a newer Roquet")
        yield decision


def _journal(root: ObjectLocation) -> ObjectJournal:
    return ObjectJournal(msgspec.structs.replace(root, url=root.file(f"{HIDDEN}/{RESENDS}")))


def _name(number: int, state: str) -> str:
    return f"{number:010}.{state}"
