"""Epoch stream: the log of an elected master, with its epochs, and reports of its replicas.

    replica → master    (sizes in bytes)
      handshake         │ state 4 │ from last file 2 │ learner 2 │ broker id 8 │
      report            │ state 4 │ log end 8 │

    master → replica
      handshake         │ state 4 │ size 4 │ log end 8 │ last epoch 4 │ epoch 4, start 8 │ …
      log frame         │ state 4 │ size 4 │ position 8 │ epoch 4, start 8 │ confirmed 8 │ log …

The state is the sender's: 1 in a handshake, 2 while the log is transferred; others never travel.
The size counts what follows the header: entries of 12 bytes, or bytes of the log, which
belong to one epoch. Source: Apache RocketMQ 5.5.0, AutoSwitchHAConnection and AutoSwitchHAClient.
"""

from collections.abc import Sequence
from itertools import pairwise
from struct import Struct
from typing import Final, TypeAlias

import msgspec

from roquet.model.epoch import EpochEntry
from roquet.model.errors import RemoteProtocolError
from roquet.wire.frame import FrameSplitter, checked_body_size

HANDSHAKE: Final = 1
TRANSFER: Final = 2
"""States on the wire (HAConnectionState)."""

EPOCHS_MAX: Final = 1_000
"""Epochs of a handshake: Apache's master has a buffer for so many."""

NO_LOG: Final = -1
"""Position in the heartbeats of a master without a byte of log."""

_STATE: Final = Struct(">i")
_REPLICA_HANDSHAKE: Final = Struct(">ihhq")
_REPORT: Final = Struct(">iq")
_PREFIX: Final = Struct(">ii")
_MASTER_HANDSHAKE: Final = Struct(">iiqi")
_ENTRY: Final = Struct(">iq")
_FRAME: Final = Struct(">iiqiqq")


class ReplicaHandshake(msgspec.Struct, frozen=True, kw_only=True):
    """First frame of a replica."""

    broker_id: int
    """Id that the controller gave."""
    from_last_file: bool = False
    """Begin a log that is empty with the master's last file, not with its first one."""
    is_learner: bool = False
    """Never counts as in sync, and is never elected."""


class ReplicaReport(msgspec.Struct, frozen=True):
    """Further frames of a replica: where its log ends."""

    log_end: int


class MasterHandshake(msgspec.Struct, frozen=True):
    """Answer of a master: the end and the epochs of its log, from the oldest one on."""

    log_end: int
    epochs: tuple[EpochEntry, ...]


class EpochLogFrame(msgspec.Struct, frozen=True, kw_only=True):
    """Bytes of a master's log, all of one epoch; an empty frame is a heartbeat.

    Apache's master labels the frame that ends an epoch with the next one, whose start is then
    behind the frame's position.
    """

    position: int
    """Position of the first byte, or of the next frame; `NO_LOG` before there is any."""
    epoch: EpochEntry
    confirmed: int
    """Position up to which all replicas in sync have the log (Java's confirmOffset)."""
    body: bytes = b""


ReplicaFrame: TypeAlias = ReplicaHandshake | ReplicaReport
MasterFrame: TypeAlias = MasterHandshake | EpochLogFrame


def encode_replica_handshake(handshake: ReplicaHandshake) -> bytes:
    """Encode the first frame of a replica."""
    flags = int(handshake.from_last_file), int(handshake.is_learner)
    return _REPLICA_HANDSHAKE.pack(HANDSHAKE, *flags, handshake.broker_id)


def encode_replica_report(log_end: int) -> bytes:
    """Encode a replica's report."""
    return _REPORT.pack(TRANSFER, log_end)


def encode_master_handshake(log_end: int, epochs: Sequence[EpochEntry]) -> bytes:
    """Encode the answer to a handshake; there are up to `EPOCHS_MAX` epochs.

    Without any, the last epoch is -1, as Apache's master has it.
    """
    assert len(epochs) <= EPOCHS_MAX, "the oldest epochs are dropped before"
    last = epochs[-1].epoch if epochs else -1
    header = _MASTER_HANDSHAKE.pack(HANDSHAKE, len(epochs) * _ENTRY.size, log_end, last)
    return header + b"".join(_ENTRY.pack(entry.epoch, entry.start) for entry in epochs)


def encode_epoch_frame_header(position: int, size: int, epoch: EpochEntry, confirmed: int) -> bytes:
    """Encode the header of a frame, to be sent before `size` bytes of the log."""
    return _FRAME.pack(TRANSFER, size, position, epoch.epoch, epoch.start, confirmed)


class ReplicaFrameDecoder:
    """Decodes the stream from a replica."""

    __slots__ = ("_splitter",)

    def __init__(self) -> None:
        self._splitter = FrameSplitter(_STATE.size, _replica_frame_size)

    def feed(self, chunk: bytes) -> list[ReplicaFrame]:
        """Frames that this chunk completes; raises RemoteProtocolError for a malformed one."""
        return [_replica_frame(frame) for frame in self._splitter.feed(chunk)]


class MasterFrameDecoder:
    """Decodes the stream from a master."""

    __slots__ = ("_splitter",)

    def __init__(self) -> None:
        self._splitter = FrameSplitter(_PREFIX.size, _master_frame_size)

    def feed(self, chunk: bytes) -> list[MasterFrame]:
        """Frames that this chunk completes; raises RemoteProtocolError for a malformed one."""
        return [_master_frame(frame) for frame in self._splitter.feed(chunk)]


def _replica_frame_size(buffer: bytes, at: int) -> int:
    (state,) = _STATE.unpack_from(buffer, at)
    if state == TRANSFER:
        return _REPORT.size
    if state == HANDSHAKE:
        return _REPLICA_HANDSHAKE.size
    raise _illegal_state("replica", state)


def _replica_frame(frame: bytes) -> ReplicaFrame:
    if len(frame) == _REPORT.size:
        _, log_end = _REPORT.unpack(frame)
        if log_end < 0:
            raise RemoteProtocolError(f"replica reports a log that ends at {log_end}")
        return ReplicaReport(log_end)
    _, from_last_file, is_learner, broker_id = _REPLICA_HANDSHAKE.unpack(frame)
    return ReplicaHandshake(
        broker_id=broker_id, from_last_file=from_last_file == 1, is_learner=is_learner == 1
    )


def _master_frame_size(buffer: bytes, at: int) -> int:
    state, size = _PREFIX.unpack_from(buffer, at)
    if state == TRANSFER:
        return _FRAME.size + checked_body_size(size)
    if state != HANDSHAKE:
        raise _illegal_state("master", state)
    if size % _ENTRY.size or not 0 <= size <= EPOCHS_MAX * _ENTRY.size:
        raise RemoteProtocolError(
            f"handshake with {size} bytes of epochs: {_ENTRY.size} each, up to {EPOCHS_MAX}"
        )
    return _MASTER_HANDSHAKE.size + int(size)


def _master_frame(frame: bytes) -> MasterFrame:
    (state,) = _STATE.unpack_from(frame)
    if state == HANDSHAKE:
        return _master_handshake(frame)
    _, size, position, epoch, start, confirmed = _FRAME.unpack_from(frame)
    if position < 0 and (size or position != NO_LOG):
        raise RemoteProtocolError(f"master sends log from position {position}")
    entry = EpochEntry(epoch, start)
    body = frame[_FRAME.size :]
    return EpochLogFrame(position=position, epoch=entry, confirmed=confirmed, body=body)


def _master_handshake(frame: bytes) -> MasterHandshake:
    _, _, log_end, _ = _MASTER_HANDSHAKE.unpack_from(frame)
    pairs = _ENTRY.iter_unpack(frame[_MASTER_HANDSHAKE.size :])
    epochs = tuple(EpochEntry(*pair) for pair in pairs)
    if log_end < 0:
        raise RemoteProtocolError(f"master says that its log ends at {log_end}")
    for before, after in pairwise(epochs):
        if after.epoch <= before.epoch or after.start <= before.start:
            raise RemoteProtocolError(f"epoch {after.epoch} does not follow epoch {before.epoch}")
    return MasterHandshake(log_end, epochs)


def _illegal_state(sender: str, state: int) -> RemoteProtocolError:
    return RemoteProtocolError(
        f"{sender} sends state {state}: {HANDSHAKE} and {TRANSFER} are known"
    )
