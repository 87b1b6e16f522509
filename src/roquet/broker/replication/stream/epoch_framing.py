"""Epoch framing: the stream of an elected master, with its epochs, at both ends.

    replica                                   master
      handshake: id, learner           ─────▶
                                       ◀───── handshake: epochs, log end
      logs compared, the own one cut at the consistent point
      report                           ─────▶ position
      epoch noted, bytes appended      ◀───── bytes of one epoch, confirmed position
      report                           ─────▶ sync-state set, acknowledgements

The log frames carry the epoch that their bytes belong to. Source: Apache RocketMQ 5.5.0,
AutoSwitchHAConnection and AutoSwitchHAClient; its master labels the frame that ends an epoch with
the next one, and goes on without an epoch where it has none.
"""

from collections.abc import Callable, Iterable, Iterator
from typing import Final

import msgspec

from roquet.broker.replication.confirmation.sync_set import ReplicaPlaces, SyncSet
from roquet.broker.replication.stream.framing import (
    ConsistentPoint,
    MasterFraming,
    ReplicaFraming,
    StreamError,
    begin_after,
)
from roquet.log_records import logger
from roquet.model.epoch import EpochEntry
from roquet.rules.replication.epochs import (
    EpochExtent,
    Epochs,
    append_epoch,
    consistent_point,
    drop_expired_epochs,
    extent_at,
    last_epoch,
    truncate_epochs,
)
from roquet.rules.replication.sync_state import ReplicaReportFacts, SentFrame
from roquet.store.replication.epoch_file import EpochFile
from roquet.store.store import Store
from roquet.wire.replication.classic_stream import LogFrame
from roquet.wire.replication.epoch_stream import (
    EPOCHS_MAX,
    NO_LOG,
    EpochLogFrame,
    MasterFrameDecoder,
    MasterHandshake,
    ReplicaFrameDecoder,
    ReplicaHandshake,
    encode_epoch_frame_header,
    encode_master_handshake,
    encode_replica_handshake,
    encode_replica_report,
)

log = logger(__name__)

EMPTY: Final = "empty the directory of this broker to copy the master's"

OLDER: Final = (
    "this one was written without a controller and is longer than the master's, so it may have the"
    " only copy of its messages: to keep them, stop the other brokers, remove the group at the"
    " controller (cleanBrokerMetadata) and start this broker before them; else empty its directory"
)


class EpochLog:
    """Epochs of one log, the oldest first, in memory and in their file.

    Every change is in the file before it returns: an epoch is noted before its first byte is
    stored.
    """

    def __init__(self, file: EpochFile | None) -> None:
        """Load them; None keeps them in memory. Raises StoreError for a damaged file."""
        self._file = file
        self.entries: Epochs = file.load() if file is not None else ()
        self.latest = last_epoch(self.entries)
        """Latest epoch that this log ever had, also if the bytes of it are gone; -1 for none."""

    def append(self, epoch: int, start: int) -> None:
        """Begin an epoch at a position, the log's end; later than all others. Raises StoreError.

        The first epoch of a log begins where the caller says, not necessarily at its end.
        """
        self._save(append_epoch(self.entries, epoch, start))
        self.latest = max(self.latest, epoch)

    def truncate(self, end: int) -> None:
        """Drop the epochs of a log that is cut at `end`. Raises StoreError."""
        self._save(truncate_epochs(self.entries, end))

    def expire(self, begin: int) -> None:
        """Drop the epochs whose last byte is before the log's begin. Raises StoreError."""
        self._save(drop_expired_epochs(self.entries, begin))

    def extent_at(self, position: int) -> EpochExtent | None:
        """Epoch of the byte at a position; None before the first one."""
        return extent_at(self.entries, position)

    def within(self, end: int) -> Epochs:
        """Epochs that have bytes in a log that ends at `end`, to be compared with a master's.

        A loss of power may have taken the tail of the log and not the note of its epoch.
        """
        return truncate_epochs(self.entries, end)

    def _save(self, entries: tuple[EpochEntry, ...]) -> None:
        if entries != self.entries:
            if self._file is not None:
                self._file.save(entries)
            self.entries = entries


class EpochMaster(msgspec.Struct, frozen=True, kw_only=True):
    """Parts of a master that its connections share."""

    store: Store
    epochs: EpochLog
    sync_set: SyncSet
    places: ReplicaPlaces


class EpochMasterFraming(MasterFraming):
    """One connection at the master's end, with epochs."""

    def __init__(self, master: EpochMaster, number: int, write: Callable[[bytes], None]) -> None:
        self._master = master
        self._number = number
        self._write = write
        self._frames = ReplicaFrameDecoder()
        self._replica: ReplicaHandshake | None = None

    def feed(self, chunk: bytes) -> int | None:
        """See MasterFraming; answers the handshake."""
        report: int | None = None
        for frame in self._frames.feed(chunk):
            if isinstance(frame, ReplicaHandshake):
                self._greet(frame)
            elif self._replica is None:
                raise StreamError("it reports before its handshake")
            else:
                report = frame.log_end
        return report

    def _greet(self, handshake: ReplicaHandshake) -> None:
        if self._replica is not None:
            raise StreamError("it sends a second handshake")
        if handshake.broker_id < 1:
            raise StreamError(f"{handshake.broker_id} is no id of a replica")
        self._replica = handshake
        entries = self._master.epochs.entries[-EPOCHS_MAX:]
        self._write(encode_master_handshake(self._master.store.raw.end, entries))

    def start(self, report: int) -> int:
        """See MasterFraming."""
        assert self._replica is not None, "a report comes after the handshake"
        start = begin_after(report, self._master.store, from_last_file=self._replica.from_last_file)
        if self._master.epochs.extent_at(start) is None:
            raise StreamError(f"its log ends at {report}, which is in none of this master's epochs")
        return start

    def size_max(self, position: int) -> int | None:
        """See MasterFraming: no frame crosses the end of an epoch."""
        extent = self._extent(position)
        return None if extent.end is None else extent.end - position

    def header(self, position: int, size: int) -> bytes:
        """See MasterFraming."""
        raw, entry = self._master.store.raw, self._extent(position).entry
        is_empty = raw.begin == raw.end == 0
        confirmed = self._master.sync_set.confirmed
        return encode_epoch_frame_header(NO_LOG if is_empty else position, size, entry, confirmed)

    def _extent(self, position: int) -> EpochExtent:
        extent = self._master.epochs.extent_at(position)
        if extent is None:
            raise StreamError(f"position {position} is in none of this master's epochs")
        return extent

    def note(self, report: int, last: SentFrame) -> None:
        """See MasterFraming."""
        assert self._replica is not None, "a report comes after the handshake"
        facts = ReplicaReportFacts(
            broker_id=self._replica.broker_id, report=report, is_learner=self._replica.is_learner
        )
        self._master.places.report(self._number, facts, last)

    def is_in_sync(self, _report: int) -> bool:
        """See MasterFraming."""
        if self._replica is None:
            return False
        broker_id = self._replica.broker_id
        is_holder = self._master.places.is_holder(self._number, broker_id)
        return is_holder and broker_id in self._master.sync_set.state.members

    @property
    def is_contested(self) -> bool:
        """See MasterFraming."""
        return self._replica is not None and self._master.places.is_contested(
            self._replica.broker_id
        )

    def close(self) -> None:
        """See MasterFraming."""
        if self._replica is not None:
            self._master.places.forget(self._number, self._replica.broker_id)


class EpochReplica(msgspec.Struct, frozen=True, kw_only=True):
    """Parts of a replica that its connections share."""

    store: Store
    epochs: EpochLog
    broker_id: Callable[[], int]
    from_last_file: bool
    is_learner: bool
    confirmed: Callable[[], int]
    """Position up to which messages were confirmed here."""
    before_cut: Iterable[Callable[[int], object]]
    """Called with the position before the log is cut there. A StoreError puts the cut off."""
    after_cut: Iterable[Callable[[], object]]
    on_confirmed: Callable[[int, bool], object]
    """Called with the confirmed position, and whether the log has all that was ever acknowledged:
    what is confirmed, and what the master's log had when this conversation began. Where fewer than
    all of the set are needed, messages are acknowledged before they are confirmed."""


class EpochReplicaFraming(ReplicaFraming):
    """One connection at the replica's end, with epochs."""

    def __init__(self, replica: EpochReplica) -> None:
        self._replica = replica
        self._frames = MasterFrameDecoder()
        self._end_then = 0
        """End of the master's log when the conversation began."""
        self.is_ready = False

    def greeting(self) -> bytes:
        """See ReplicaFraming."""
        return encode_replica_handshake(
            ReplicaHandshake(
                broker_id=self._replica.broker_id(),
                from_last_file=self._replica.from_last_file,
                is_learner=self._replica.is_learner,
            )
        )

    def feed(self, chunk: bytes) -> Iterable[LogFrame | ConsistentPoint]:
        """See ReplicaFraming; cuts the log where it differs from the master's."""
        for frame in self._frames.feed(chunk):
            if isinstance(frame, MasterHandshake):
                yield from self._agree(frame)
            else:
                yield from self._frame(frame)

    def _frame(self, frame: EpochLogFrame) -> Iterator[LogFrame]:
        if not self.is_ready:
            raise StreamError("it sends its log before its handshake")
        if frame.position != NO_LOG:
            self._note_epoch(frame)
            yield LogFrame(frame.position, frame.body)
        end = self._replica.store.raw.end
        is_whole = end >= max(frame.confirmed, self._end_then)
        self._replica.on_confirmed(min(frame.confirmed, end), is_whole)

    def _note_epoch(self, frame: EpochLogFrame) -> None:
        """Note the epoch of a frame before its bytes. Raises StreamError for an impossible one."""
        epochs, entry = self._replica.epochs, frame.epoch
        latest = last_epoch(epochs.entries)
        if entry.epoch == latest or not frame.body:
            return
        if (
            entry.epoch < latest
            or entry.start < 0
            or entry.start > frame.position + len(frame.body)
        ):
            raise StreamError(
                f"it sends epoch {entry.epoch} from {entry.start} on, after epoch {latest}"
            )
        epochs.append(entry.epoch, entry.start)

    def report(self, log_end: int) -> bytes:
        """See ReplicaFraming."""
        return encode_replica_report(log_end)

    def _agree(self, master: MasterHandshake) -> Iterator[ConsistentPoint]:
        """Cut the log where it stops to be the master's."""
        if self.is_ready:
            raise StreamError("it sends a second handshake")
        point = self._consistent_point(master)
        yield ConsistentPoint(point)
        raw, epochs = self._replica.store.raw, self._replica.epochs
        if point < raw.end:
            self._report_cut(point, last_epoch(master.epochs))
            for prepare in self._replica.before_cut:
                prepare(point)
            raw.truncate(point)
            for follow in self._replica.after_cut:
                follow()
        epochs.truncate(point)
        self._end_then = master.log_end
        self.is_ready = True

    def _report_cut(self, point: int, epoch: int) -> None:
        end, confirmed = self._replica.store.raw.end, self._replica.confirmed()
        if point < confirmed:
            log.error(
                "messages from position %d to %d are lost: they were confirmed, but the master of "
                "epoch %d was elected without them (an unclean election)",
                point, confirmed, epoch,
            )  # fmt: skip
        log.warning(
            "the log is cut from %d to %d: the master of epoch %d never had the rest",
            end, point, epoch,
        )  # fmt: skip

    def _consistent_point(self, master: MasterHandshake) -> int:
        raw = self._replica.store.raw
        if raw.begin == raw.end:
            return raw.end
        own = self._replica.epochs.within(raw.end)
        point = consistent_point(own, raw.end, master.epochs, master.log_end)
        if point is None and not own and raw.end <= master.log_end:
            point = raw.end  # written where roles are fixed: its last message is compared
        if point is None and self._began_together(own, master.epochs):
            point = raw.begin
        if point is None or point < raw.begin:
            raise StreamError(
                f"the logs have no epoch in common (here {_text(own)}, there "
                f"{_text(master.epochs)}): nobody but an operator can tell which one counts;"
                f" {OLDER if not own else EMPTY}"
            )
        return point

    def _began_together(self, own: Epochs, master: Epochs) -> bool:
        """Whether both logs have all bytes since they began, and none of the own is confirmed.

        So it is where a first master had stored messages that nobody else got.
        """
        begin = self._replica.store.raw.begin
        starts = {epochs[0].start if epochs else None for epochs in (own, master)}
        return starts == {begin} and self._replica.confirmed() <= begin


def _text(epochs: Iterable[EpochEntry]) -> str:
    return ", ".join(f"{entry.epoch} from {entry.start}" for entry in epochs) or "none"
