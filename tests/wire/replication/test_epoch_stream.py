"""The stream with epochs, against bytes of a genuine master and its replicas."""

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.wire.replication.conftest import sent_by

from roquet.model.epoch import EpochEntry
from roquet.model.errors import RemoteProtocolError
from roquet.wire.frame import LOG_BODY_SIZE_MAX
from roquet.wire.replication.epoch_stream import (
    EPOCHS_MAX,
    HANDSHAKE,
    NO_LOG,
    TRANSFER,
    EpochLogFrame,
    MasterFrame,
    MasterFrameDecoder,
    MasterHandshake,
    ReplicaFrame,
    ReplicaFrameDecoder,
    ReplicaHandshake,
    ReplicaReport,
    encode_epoch_frame_header,
    encode_master_handshake,
    encode_replica_handshake,
    encode_replica_report,
)

NAMES = ["autoswitch-first-epoch", "autoswitch-rejoin", "autoswitch-fresh-four-epochs"]
LONGS = st.integers(0, 2**63 - 1)
ENTRIES = st.builds(EpochEntry, st.integers(0, 2**31 - 1), LONGS)
RISING = st.lists(st.tuples(st.integers(1, 9), st.integers(1, 900)), max_size=5)
LOG_FRAMES = st.builds(
    EpochLogFrame, position=LONGS, epoch=ENTRIES, confirmed=LONGS, body=st.binary(max_size=50)
)


def handshake_of(end: int, steps: list[tuple[int, int]]) -> MasterHandshake:
    entries, epoch, start = [], 0, 0
    for more, further in steps:
        epoch, start = epoch + more, start + further
        entries.append(EpochEntry(epoch, start))
    return MasterHandshake(end, tuple(entries))


MASTER_FRAMES = st.lists(LOG_FRAMES | st.builds(handshake_of, LONGS, RISING), max_size=5)
REPLICA_FRAMES = st.lists(
    st.builds(ReplicaReport, LONGS)
    | st.builds(
        ReplicaHandshake, broker_id=LONGS, from_last_file=st.booleans(), is_learner=st.booleans()
    ),
    max_size=5,
)


def encoded(frame: MasterFrame | ReplicaFrame) -> bytes:
    match frame:
        case MasterHandshake():
            return encode_master_handshake(frame.log_end, frame.epochs)
        case EpochLogFrame(position=position, epoch=epoch, confirmed=confirmed, body=body):
            return encode_epoch_frame_header(position, len(body), epoch, confirmed) + body
        case ReplicaHandshake():
            return encode_replica_handshake(frame)
        case ReplicaReport():
            return encode_replica_report(frame.log_end)


@pytest.mark.parametrize("name", NAMES)
def test_genuine_streams_are_read_and_written_to_the_byte(name: str) -> None:
    from_master, from_replica = sent_by(name, "master"), sent_by(name, "replica")
    frames = MasterFrameDecoder().feed(from_master)
    assert b"".join(map(encoded, frames)) == from_master
    reports = ReplicaFrameDecoder().feed(from_replica)
    assert b"".join(map(encoded, reports)) == from_replica


def test_a_replica_says_first_who_it_is() -> None:
    first, *reports = ReplicaFrameDecoder().feed(sent_by(NAMES[0], "replica"))
    assert first == ReplicaHandshake(broker_id=2)
    assert reports[:4] == [ReplicaReport(0), ReplicaReport(0), ReplicaReport(0), ReplicaReport(215)]


def test_an_empty_master_sends_heartbeats_without_a_position() -> None:
    first, beat, *_ = MasterFrameDecoder().feed(sent_by(NAMES[0], "master"))
    assert first == MasterHandshake(0, (EpochEntry(1, 0),))
    assert beat == EpochLogFrame(position=NO_LOG, epoch=EpochEntry(1, 0), confirmed=0)


def test_a_master_of_four_epochs_names_them_all_and_confirms_its_end() -> None:
    first, beat, *frames = MasterFrameDecoder().feed(sent_by(NAMES[2], "master"))
    epochs = (EpochEntry(1, 0), EpochEntry(2, 1075), EpochEntry(3, 2574), EpochEntry(4, 3861))
    assert first == MasterHandshake(4285, epochs)
    assert beat == EpochLogFrame(position=0, epoch=epochs[0], confirmed=4285)
    # Apache's master labels the frame that ends an epoch with the next one.
    labels = [(f.position, f.epoch) for f in frames if isinstance(f, EpochLogFrame)]
    assert labels == [(0, epochs[1]), (1075, epochs[2]), (2574, epochs[3]), (3861, epochs[3])]


@given(MASTER_FRAMES, st.integers(1, 30))
def test_any_split_of_a_masters_stream_gives_the_same_frames(
    sent: list[MasterFrame], step: int
) -> None:
    stream, decoder = b"".join(map(encoded, sent)), MasterFrameDecoder()
    chunks = [stream[at : at + step] for at in range(0, len(stream), step)]
    assert [frame for chunk in chunks for frame in decoder.feed(chunk)] == sent


@given(REPLICA_FRAMES, st.integers(1, 30))
def test_any_split_of_a_replicas_stream_gives_the_same_frames(
    sent: list[ReplicaFrame], step: int
) -> None:
    stream, decoder = b"".join(map(encoded, sent)), ReplicaFrameDecoder()
    chunks = [stream[at : at + step] for at in range(0, len(stream), step)]
    assert [frame for chunk in chunks for frame in decoder.feed(chunk)] == sent


def test_a_master_without_epochs_says_so_by_a_number() -> None:
    assert encode_master_handshake(7, ()).hex() == f"{1:08x}{0:08x}{7:016x}ffffffff"


@pytest.mark.parametrize("state", [0, 3, 4, -1])
def test_other_states_end_the_connection(state: int) -> None:
    with pytest.raises(RemoteProtocolError, match=f"replica sends state {state}:"):
        ReplicaFrameDecoder().feed(struct.pack(">i", state))
    with pytest.raises(RemoteProtocolError, match=f"master sends state {state}:"):
        MasterFrameDecoder().feed(struct.pack(">ii", state, 0))


@pytest.mark.parametrize("size", [-12, 11, 12 * (EPOCHS_MAX + 1)])
def test_a_handshake_of_impossible_size_ends_the_connection(size: int) -> None:
    with pytest.raises(RemoteProtocolError, match=f"{size} bytes of epochs"):
        MasterFrameDecoder().feed(struct.pack(">ii", HANDSHAKE, size))


@pytest.mark.parametrize("size", [-1, LOG_BODY_SIZE_MAX + 1])
def test_a_frame_of_impossible_size_ends_the_connection(size: int) -> None:
    with pytest.raises(RemoteProtocolError, match=f"{size} bytes of log"):
        MasterFrameDecoder().feed(struct.pack(">ii", TRANSFER, size))


@pytest.mark.parametrize(
    "entries", [[EpochEntry(2, 0), EpochEntry(2, 5)], [EpochEntry(1, 5), EpochEntry(2, 5)]]
)
def test_epochs_that_do_not_rise_end_the_connection(entries: list[EpochEntry]) -> None:
    with pytest.raises(RemoteProtocolError, match="epoch 2 does not follow"):
        MasterFrameDecoder().feed(encode_master_handshake(9, entries))


def test_negative_ends_and_positions_end_the_connection() -> None:
    entry = EpochEntry(1, 0)
    with pytest.raises(RemoteProtocolError, match="ends at -1"):
        MasterFrameDecoder().feed(encode_master_handshake(-1, ()))
    with pytest.raises(RemoteProtocolError, match="position -2"):
        MasterFrameDecoder().feed(encode_epoch_frame_header(-2, 0, entry, 0))
    with pytest.raises(RemoteProtocolError, match="position -1"):
        MasterFrameDecoder().feed(encode_epoch_frame_header(NO_LOG, 1, entry, 0) + b"x")
    with pytest.raises(RemoteProtocolError, match="ends at -5"):
        ReplicaFrameDecoder().feed(encode_replica_report(-5))
