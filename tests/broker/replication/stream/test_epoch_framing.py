"""The stream with epochs, byte by byte as the genuine programs speak it."""

import logging
from collections.abc import Iterator
from pathlib import Path

import pytest

from roquet.broker.replication.confirmation.sync_set import ReplicaPlaces, SyncSet
from roquet.broker.replication.stream.epoch_framing import (
    EpochLog,
    EpochMaster,
    EpochMasterFraming,
    EpochReplica,
    EpochReplicaFraming,
)
from roquet.broker.replication.stream.framing import ConsistentPoint, StreamError
from roquet.model.epoch import EpochEntry
from roquet.model.errors import RemoteProtocolError, StoreError
from roquet.rules.replication.acknowledgement import ALL_OF_THE_SET
from roquet.rules.replication.epochs import EpochExtent
from roquet.rules.replication.sync_state import SentFrame, SyncState
from roquet.store.config import StoreConfig
from roquet.store.filesystem.memory_files import MemoryFiles
from roquet.store.replication.epoch_file import EpochFile
from roquet.store.store import Draft, Store
from roquet.testing.clock import START_MS, VirtualClock
from roquet.wire.replication.classic_stream import LogFrame
from roquet.wire.replication.epoch_stream import (
    ReplicaHandshake,
    encode_epoch_frame_header,
    encode_master_handshake,
    encode_replica_handshake,
    encode_replica_report,
)

PATH = Path("/data/epochFileCheckpoint")

CAPTURES = Path(__file__).parents[3] / "vectors" / "replication"

HELLO = encode_master_handshake(900, (EpochEntry(1, 0), EpochEntry(5, 400)))


def entries(*pairs: tuple[int, int]) -> tuple[EpochEntry, ...]:
    return tuple(EpochEntry(*pair) for pair in pairs)


def test_a_change_is_in_the_file_at_once() -> None:
    files = MemoryFiles()
    epochs = EpochLog(EpochFile(PATH, files))
    assert (epochs.entries, epochs.latest) == ((), -1)
    epochs.append(1, 0)
    epochs.append(2, 700)
    assert EpochFile(PATH, files).load() == entries((1, 0), (2, 700))
    epochs.truncate(700)
    assert EpochFile(PATH, files).load() == entries((1, 0))
    epochs.append(4, 700)
    epochs.expire(701)
    assert EpochFile(PATH, files).load() == epochs.entries == entries((4, 700))


def test_what_changes_nothing_writes_nothing() -> None:
    files = MemoryFiles()
    epochs = EpochLog(EpochFile(PATH, files))
    epochs.expire(0)
    epochs.truncate(0)
    assert files.contents == {}


def test_the_latest_epoch_is_remembered_though_its_bytes_are_gone() -> None:
    epochs = EpochLog(None)
    epochs.append(3, 0)
    epochs.truncate(0)
    assert epochs.entries == ()
    assert epochs.latest == 3


def test_a_log_without_its_tail_lacks_the_epochs_behind_it() -> None:
    epochs = EpochLog(None)
    epochs.append(1, 0)
    epochs.append(2, 700)
    assert epochs.within(650) == entries((1, 0))
    assert epochs.entries == entries((1, 0), (2, 700))
    assert epochs.extent_at(650) == EpochExtent(EpochEntry(1, 0), 700)


def test_a_damaged_file_without_a_copy_stops_the_start() -> None:
    files = MemoryFiles()
    files.replace(PATH, b"2\n7\n1-0\n")
    with pytest.raises(StoreError, match="epochFileCheckpoint cannot be read"):
        EpochLog(EpochFile(PATH, files))


def captured(name: str, sender: str) -> Iterator[bytes]:
    """Whole segments that one side sent; those that the capture cut end it."""
    for line in (CAPTURES / name).read_text().splitlines():
        words = line.split()
        if words[0] != "#" and words[1] == sender:
            if words[3].endswith("..."):
                return
            yield bytes.fromhex(words[3])


class Master:
    """The master's end of a connection over a log of its own."""

    def __init__(self, *epochs: tuple[int, int], end: int = 0) -> None:
        clock = VirtualClock()
        self.store = store = Store.open(None, StoreConfig(log_file_size=4_096), now_ms=START_MS)
        self.epochs = EpochLog(None)
        for epoch, start in epochs:
            self.epochs.append(epoch, start)
        if end:
            fill(store, end)
        self.set = SyncSet(
            clock,
            lambda: store.raw.end,
            lambda: ALL_OF_THE_SET,
            lambda _: None,
            flushed=lambda: store.flushed_position,
            only_flushed=lambda _: False,
        )
        self.set.begin(1, SyncState(members=frozenset({1}), version=1), end)
        self.places = ReplicaPlaces(self.set, clock, lambda: store.raw.end, lambda: 7_500)
        self.parts = EpochMaster(
            store=store, epochs=self.epochs, sync_set=self.set, places=self.places
        )
        self.sent: list[bytes] = []
        self.framing = self.connection(1)

    def connection(self, number: int) -> EpochMasterFraming:
        return EpochMasterFraming(self.parts, number, self.sent.append)

    def greet(self, broker_id: int = 2, **flags: bool) -> None:
        handshake = ReplicaHandshake(broker_id=broker_id, **flags)
        self.framing.feed(encode_replica_handshake(handshake))


class Replica:
    """The replica's end of a connection over a log of its own."""

    def __init__(self, *epochs: tuple[int, int], end: int = 0, confirmed: int = 0) -> None:
        self.store = store = Store.open(None, StoreConfig(log_file_size=4_096), now_ms=START_MS)
        if end:
            fill(store, end)
        self.epochs = EpochLog(None)
        for epoch, start in epochs:
            self.epochs.append(epoch, start)
        self.cuts = 0
        self.prepared: list[tuple[int, int]] = []
        """Points of cuts, and the log's end before each."""
        self.confirmed: list[tuple[int, bool]] = []
        parts = EpochReplica(
            store=store,
            epochs=self.epochs,
            broker_id=lambda: 2,
            from_last_file=False,
            is_learner=False,
            confirmed=lambda: confirmed,
            before_cut=[lambda point: self.prepared.append((point, store.raw.end))],
            after_cut=[self._cut],
            on_confirmed=lambda *positions: self.confirmed.append(positions),
        )
        self.framing = EpochReplicaFraming(parts)

    def _cut(self) -> None:
        self.cuts += 1

    def feed(self, chunk: bytes) -> None:
        """Append what comes, as the stream client does."""
        for frame in self.framing.feed(chunk):
            if isinstance(frame, LogFrame):
                self.store.raw.append(frame.position, frame.body)


def fill(store: Store, end: int) -> None:
    """Append messages until the log ends there, in steps of 100 bytes."""
    while store.end_position < end:
        draft = Draft("orders", 0, b"x" * 3, b"", 0, store_host=bytes(8))
        store.append(draft, START_MS)
    assert store.end_position == end


def test_a_genuine_replica_joins_an_empty_master() -> None:
    master = Master((1, 0))
    replies = captured("autoswitch-first-epoch.txt", "replica")
    assert master.framing.feed(next(replies)) is None
    assert b"".join(master.sent) == b"".join(
        list(captured("autoswitch-first-epoch.txt", "master"))[:2]
    )
    assert master.framing.feed(next(replies)) == 0
    assert master.framing.start(0) == 0
    heartbeat = list(captured("autoswitch-first-epoch.txt", "master"))[2]
    assert master.framing.header(0, 0) == heartbeat


def test_a_replica_joins_an_empty_genuine_master() -> None:
    replica = Replica()
    sent = list(captured("autoswitch-first-epoch.txt", "replica"))
    assert replica.framing.greeting() == sent[0]
    assert not replica.framing.is_ready
    for segment in list(captured("autoswitch-first-epoch.txt", "master"))[:5]:
        replica.feed(segment)
    assert replica.framing.is_ready
    assert replica.framing.report(0) == sent[1]
    assert replica.epochs.entries == ()
    assert replica.confirmed[-1] == (0, True)


def test_a_fresh_replica_learns_all_epochs_of_a_genuine_master() -> None:
    replica = Replica()
    first = [
        "000000010000003000000000000010bd00000004",
        "000000010000000000000000000000020000000000000433000000030000000000000a0e000000040000000000000f15",
        "0000000200000000000000000000000000000001000000000000000000000000000010bd",
    ]
    for segment in first:
        replica.feed(bytes.fromhex(segment))
    # Its frames that end an epoch have the label of the next one.
    lengths = [(0x433, 0, 2, 0x433), (0x5DB, 0x433, 3, 0xA0E), (0x507, 0xA0E, 4, 0xF15)]
    for size, position, epoch, start in lengths:
        header = encode_epoch_frame_header(position, size, EpochEntry(epoch, start), 0x10BD)
        replica.feed(header + bytes(size))
    assert replica.epochs.entries == (
        EpochEntry(2, 0x433),
        EpochEntry(3, 0xA0E),
        EpochEntry(4, 0xF15),
    )
    assert replica.store.raw.end == 0xF15
    assert replica.confirmed[-1] == (0xF15, False)


def test_frames_have_the_label_of_their_own_epoch_and_do_not_cross_its_end() -> None:
    master = Master((1, 0), (2, 300), end=500)
    assert master.framing.size_max(100) == 200
    assert master.framing.size_max(300) is None
    assert master.framing.header(100, 200) == encode_epoch_frame_header(
        100, 200, EpochEntry(1, 0), 500
    )
    assert master.framing.header(300, 200) == encode_epoch_frame_header(
        300, 200, EpochEntry(2, 300), 500
    )


def test_a_position_without_an_epoch_ends_the_connection() -> None:
    master = Master((2, 300), end=500)
    master.greet()
    with pytest.raises(StreamError, match="position 100 is in none of this master's epochs"):
        master.framing.header(100, 10)
    with pytest.raises(StreamError, match="ends at 100, which is in none"):
        master.framing.start(100)
    with pytest.raises(StreamError, match="empty its directory"):
        master.framing.start(600)


def test_reports_of_a_replica_count_for_its_id() -> None:
    master = Master((1, 0), end=500)
    master.greet(3)
    assert not master.framing.is_in_sync(500)
    master.framing.note(500, SentFrame(500, 0))
    assert master.set.wanted(15_000) == {1, 3}
    master.set.propose(frozenset({1, 3}))
    master.set.adopt(frozenset({1, 3}), 2)
    assert master.framing.is_in_sync(500)
    master.framing.close()
    assert master.set.wanted(15_000) == {1}


def test_a_learner_counts_for_nothing() -> None:
    master = Master((1, 0), end=500)
    master.greet(3, is_learner=True)
    master.framing.note(500, SentFrame(500, 0))
    assert master.set.wanted(15_000) == {1}


def test_sixteen_bytes_in_a_replicas_name_take_nothing_from_it() -> None:
    master = Master((1, 0), end=500)
    replica = master.framing
    master.greet(3)
    replica.note(500, SentFrame(500, 0))
    stranger = master.framing = master.connection(2)
    master.greet(3)
    assert not replica.is_contested
    replica.note(500, SentFrame(500, 0))
    assert master.set.wanted(15_000) == {1, 3}
    stranger.close()
    assert master.set.wanted(15_000) == {1, 3}
    replica.close()
    assert master.set.wanted(15_000) == {1}


def test_the_end_of_an_older_connection_gives_its_place_to_a_newer_one() -> None:
    master = Master((1, 0), end=500)
    older = master.framing
    master.greet(3)
    older.note(100, SentFrame(500, 0))
    newer = master.framing = master.connection(2)
    master.greet(3)
    newer.note(500, SentFrame(500, 0))
    assert older.is_contested
    older.close()
    assert not newer.is_contested
    assert master.set.wanted(15_000) == {1, 3}


def test_a_connection_that_ends_before_its_handshake_is_nobodys() -> None:
    master = Master((1, 0))
    assert not master.framing.is_contested
    master.framing.close()


@pytest.mark.parametrize(
    ("stream", "reason"),
    [
        (encode_replica_report(0), "reports before its handshake"),
        (encode_replica_handshake(ReplicaHandshake(broker_id=0)), "0 is no id"),
        (encode_replica_handshake(ReplicaHandshake(broker_id=2)) * 2, "second handshake"),
        (b"\x00\x00\x00\x09" * 4, "state 9"),
    ],
)
def test_a_replica_that_breaks_the_rules_is_disconnected(stream: bytes, reason: str) -> None:
    with pytest.raises((StreamError, RemoteProtocolError), match=reason):
        Master((1, 0)).framing.feed(stream)


def test_a_master_with_very_many_epochs_names_the_latest() -> None:
    master = Master(*((n, n) for n in range(1, 1_102)))
    master.greet()
    assert len(master.sent[0]) == 20 + 12 * 1_000


def test_an_old_master_is_cut_where_the_new_one_began(caplog: pytest.LogCaptureFixture) -> None:
    replica = Replica((1, 0), end=500, confirmed=300)
    with caplog.at_level(logging.WARNING):
        replica.feed(encode_master_handshake(900, (EpochEntry(1, 0), EpochEntry(2, 300))))
    assert replica.store.raw.end == 300
    assert (replica.cuts, replica.prepared) == (1, [(300, 500)])
    assert "the log is cut from 500 to 300: the master of epoch 2 never had the rest" in caplog.text
    assert "are lost" not in caplog.text
    assert replica.framing.is_ready


def test_nothing_is_cut_or_reported_before_the_logs_are_compared() -> None:
    replica = Replica((1, 0), end=500)
    hello = encode_master_handshake(900, (EpochEntry(1, 0), EpochEntry(2, 300)))
    frames = iter(replica.framing.feed(hello))
    assert next(frames) == ConsistentPoint(300)
    assert (replica.store.raw.end, replica.framing.is_ready) == (500, False)
    assert list(frames) == []
    assert (replica.store.raw.end, replica.framing.is_ready) == (300, True)


def test_the_log_says_what_an_unclean_election_has_lost(caplog: pytest.LogCaptureFixture) -> None:
    replica = Replica((1, 0), end=500, confirmed=400)
    with caplog.at_level(logging.ERROR):
        replica.feed(encode_master_handshake(900, (EpochEntry(1, 0), EpochEntry(2, 300))))
    assert "messages from position 300 to 400 are lost" in caplog.text


def test_an_epoch_behind_the_cut_is_forgotten() -> None:
    replica = Replica((1, 0), (2, 300), end=500)
    replica.feed(encode_master_handshake(900, (EpochEntry(1, 0), EpochEntry(3, 200))))
    assert replica.epochs.entries == (EpochEntry(1, 0),)
    assert replica.store.raw.end == 200


@pytest.mark.parametrize(
    ("own", "master_end", "advice"),
    [(((1, 100),), 900, "empty the directory"), ((), 400, "it may have the only copy")],
)
def test_logs_without_a_common_epoch_are_left_to_an_operator(
    own: tuple[tuple[int, int], ...], master_end: int, advice: str
) -> None:
    replica = Replica(*own, end=500)
    with pytest.raises(StreamError, match=f"no epoch in common .* {advice}"):
        replica.feed(encode_master_handshake(master_end, (EpochEntry(1, 0),)))
    assert replica.store.raw.end == 500


@pytest.mark.parametrize("master_end", [500, 900])
def test_a_log_without_epochs_goes_on_at_its_end_once_it_is_compared(master_end: int) -> None:
    replica = Replica(end=500)
    frames = list(replica.framing.feed(encode_master_handshake(master_end, (EpochEntry(3, 0),))))
    assert frames == [ConsistentPoint(500)]
    assert replica.framing.is_ready
    frame = encode_epoch_frame_header(500, 9, EpochEntry(3, 0), 0) + bytes(9)
    replica.feed(frame)
    assert replica.epochs.entries == (EpochEntry(3, 0),)
    assert replica.store.raw.end == 509


def test_a_first_master_whose_messages_nobody_else_got_begins_anew() -> None:
    replica = Replica((1, 0), end=500)
    replica.feed(encode_master_handshake(900, (EpochEntry(2, 0), EpochEntry(6, 764))))
    assert replica.store.raw.end == 0
    assert replica.epochs.entries == ()


def test_confirmed_messages_without_a_common_epoch_are_left_to_an_operator() -> None:
    replica = Replica((1, 0), end=500, confirmed=100)
    with pytest.raises(StreamError, match="no epoch in common"):
        replica.feed(encode_master_handshake(900, (EpochEntry(2, 0),)))
    assert replica.store.raw.end == 500


@pytest.mark.parametrize(
    ("stream", "reason"),
    [
        (encode_epoch_frame_header(0, 0, EpochEntry(1, 0), 0), "before its handshake"),
        (HELLO * 2, "second handshake"),
        (
            HELLO + encode_epoch_frame_header(500, 9, EpochEntry(4, 0), 0) + bytes(9),
            "epoch 4 from 0 on, after epoch 5",
        ),
        (
            HELLO + encode_epoch_frame_header(500, 9, EpochEntry(6, 510), 0) + bytes(9),
            "epoch 6 from 510 on",
        ),
        (
            HELLO + encode_epoch_frame_header(500, 9, EpochEntry(6, -1), 0) + bytes(9),
            "epoch 6 from -1 on",
        ),
    ],
)
def test_a_master_that_breaks_the_rules_is_left(stream: bytes, reason: str) -> None:
    replica = Replica((1, 0), (5, 400), end=500)
    with pytest.raises(StreamError, match=reason):
        replica.feed(stream)


def test_a_log_is_whole_once_it_has_what_the_masters_had_when_they_met() -> None:
    """Of fewer logs than the whole set a message is acknowledged before it is confirmed."""
    replica = Replica((1, 0), end=500)
    replica.feed(encode_master_handshake(900, [EpochEntry(1, 0)]))
    for position, is_whole in ((500, False), (700, True)):
        header = encode_epoch_frame_header(position, 200, EpochEntry(1, 0), 400)
        replica.feed(header + bytes(200))
        assert replica.confirmed[-1] == (400, is_whole)


def test_what_a_master_confirms_is_confirmed_as_far_as_it_is_here() -> None:
    replica = Replica((1, 0), (5, 400), end=500)
    replica.feed(HELLO)
    replica.feed(encode_epoch_frame_header(500, 9, EpochEntry(5, 400), 700) + bytes(9))
    assert replica.confirmed == [(509, False)]
