import random
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from roquet.arrow import log_file
from roquet.arrow.log_file import LogFile, LogFileDamage
from roquet.arrow.records import SCHEMA, RecordColumns
from roquet.wire.records import record
from roquet.wire.records.record import MAGIC_BLANK

HOST = bytes([10, 0, 0, 1, 0, 0, 0x2A, 0x9F])
BEGIN = 3 << 30
"""The file's position in its log."""


def log(bodies: list[bytes], *, queues: int = 2) -> tuple[bytes, list[int]]:
    """Adjacent records, and where each begins."""
    packed, starts = b"", []
    for number, body in enumerate(bodies):
        starts.append(len(packed))
        packed += record.pack(
            number % queues, 0, number // queues, BEGIN + len(packed), 0, 1, HOST, 2, HOST, 0, 0,
            body, b"orders", record.encode_properties({"UNIQ_KEY": f"K{number}"}),
        )  # fmt: skip
    return packed, starts


def scanned(
    data: bytes, start: int = 0, stop: int | None = None, until: int | None = None
) -> tuple[list[bytes], list[LogFileDamage]]:
    bodies: list[bytes] = []
    damage: list[LogFileDamage] = []
    file = LogFile(data, BEGIN, until=until)
    for piece in file.walk(start, len(data) if stop is None else stop):
        if isinstance(piece, LogFileDamage):
            damage.append(piece)
        else:
            rows = RecordColumns(piece, restore=False).batch(SCHEMA.names)
            rows.validate(full=True)
            bodies += rows.column("body").to_pylist()
    return bodies, damage


BODIES = [b"body %d " % n * (n % 7 + 1) for n in range(50)]


@pytest.fixture(autouse=True)
def small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(log_file, "BLOCK", 700)


@pytest.mark.parametrize("tail", [b"", bytes(5), bytes(5000)])
def test_all_records_up_to_the_zeros_after_them_are_read(tail: bytes) -> None:
    assert scanned(log(BODIES)[0] + tail) == (BODIES, [])


def test_a_file_that_has_no_room_for_the_next_record_ends_with_a_blank() -> None:
    blank = (100).to_bytes(4, "big") + MAGIC_BLANK.to_bytes(4, "big") + b"junk" * 23
    assert scanned(log(BODIES)[0] + blank) == (BODIES, [])


@given(st.lists(st.integers(0, 4_000), max_size=6))
def test_parts_of_a_file_hold_each_record_once(cuts: list[int]) -> None:
    data, _ = log(BODIES)
    edges = [0, *sorted(min(cut, len(data)) for cut in cuts), len(data)]
    pieces = [scanned(data, a, b) for a, b in pairwise(edges)]
    assert [body for bodies, _ in pieces for body in bodies] == BODIES
    assert not [damage for _, some in pieces for damage in some]


def test_a_magic_number_inside_a_body_begins_no_record() -> None:
    data, starts = log([b"a", b"xx\xda\xa3\x20\xa7" + bytes(90), b"c"])
    assert scanned(data, starts[1] + 1) == ([b"c"], [])


@pytest.mark.parametrize(
    ("at", "data", "why"),
    [
        (90, b"e", "the checksum of the body disagrees"),
        (110, b"\xff", "the topic is not UTF-8"),
        (84, (9999).to_bytes(4, "big"), "record at 0 of the block has lengths that disagree"),
    ],
)
def test_a_damaged_record_is_reported_and_skipped(at: int, data: bytes, why: str) -> None:
    whole, starts = log(BODIES)
    raw = bytearray(whole)
    raw[starts[9] + at : starts[9] + at + len(data)] = data
    bodies, (damage,) = scanned(bytes(raw))
    assert bodies == BODIES[:9] + BODIES[10:]
    assert damage.why == why
    assert (damage.position, damage.size) == (BEGIN + starts[9], starts[10] - starts[9])
    assert damage.found == bytes(raw[starts[9] : starts[10]])


def test_bytes_that_are_no_record_are_stepped_over_to_the_next_one() -> None:
    data, starts = log(BODIES)
    raw = data[: starts[9]] + bytes(starts[12] - starts[9]) + data[starts[12] :]
    bodies, (damage,) = scanned(raw)
    assert bodies == BODIES[:9] + BODIES[12:]
    assert (damage.why, damage.position) == ("no record begins here", BEGIN + starts[9])
    assert damage.size == starts[12] - starts[9]


def test_the_very_beginning_may_be_damaged() -> None:
    data, starts = log(BODIES)
    bodies, (damage,) = scanned(b"\xff" * starts[1] + data[starts[1] :])
    assert bodies == BODIES[1:]
    assert damage.position == BEGIN


@pytest.mark.parametrize("more", [-40, -1, 1, 40, 200])
def test_a_wrong_length_loses_no_other_record(more: int) -> None:
    data, starts = log(BODIES)
    raw = bytearray(data)
    total = starts[21] - starts[20] + more
    raw[starts[20] : starts[20] + 4] = total.to_bytes(4, "big")
    bodies, (damage,) = scanned(bytes(raw))
    assert bodies == BODIES[:20] + BODIES[21:]
    assert (damage.position, damage.size) == (BEGIN + starts[20], starts[21] - starts[20])


def test_a_torn_end_is_the_end() -> None:
    data, starts = log(BODIES)
    for cut in (starts[49] + 4, starts[49] + 40, len(data) - 1):
        bodies, (damage,) = scanned(data[:cut] + bytes(300))
        assert bodies == BODIES[:49]
        assert damage.is_end
        assert damage.position == BEGIN + starts[49]


@pytest.mark.parametrize("tail", [b"", bytes(5000)])
def test_records_after_damage_near_the_end_are_not_lost(
    tail: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(log_file, "BLOCK", 1 << 20)
    data, starts = log(BODIES)
    raw = data[: starts[9]] + bytes(starts[12] - starts[9]) + data[starts[12] :]
    bodies, (damage,) = scanned(raw + tail)
    assert bodies == BODIES[:9] + BODIES[12:]
    assert (damage.position, damage.size) == (BEGIN + starts[9], starts[12] - starts[9])
    assert not damage.is_end


@pytest.mark.parametrize("room", [8, 9, 35, 36, 100])
def test_a_file_that_another_follows_is_full(room: int) -> None:
    data, starts = log(BODIES)
    blank = room.to_bytes(4, "big") + MAGIC_BLANK.to_bytes(4, "big") + bytes(room - 8)
    until = BEGIN + len(data) + room
    assert scanned(data + blank) == (BODIES, []), "whether it is the last one or not"
    assert scanned(data + blank, until=until) == (BODIES, [])
    zeros = data[: starts[40]] + bytes(len(data) + room - starts[40])
    bodies, (damage,) = scanned(zeros, until=until)
    assert bodies == BODIES[:40]
    assert (damage.position, damage.is_end) == (BEGIN + starts[40], False)


@pytest.mark.parametrize("cut", [0, 3, 2000])
def test_bytes_missing_before_the_next_file_are_reported(cut: int) -> None:
    data, _ = log(BODIES)
    bodies, (damage,) = scanned(data[:cut], until=BEGIN + 70_000)
    assert bodies == BODIES[: len(bodies)]
    assert f"the log goes on at {BEGIN + 70_000}, and this file ends at {BEGIN + cut}" in damage.why
    assert damage.position + damage.size == BEGIN + 70_000
    assert not damage.is_end


def test_a_file_of_something_else_is_no_torn_record() -> None:
    data, _ = log(BODIES)
    for raw in (b"PAR1" * 500, data[3:]):
        _, (damage, *_) = scanned(raw)
        assert not damage.is_end
    (_, starts) = log(BODIES)
    assert scanned(data[: starts[1] - 1] + bytes(50))[1][0].is_end, "the first record of a new file"


@pytest.mark.parametrize("block", [700, 1 << 20])
@settings(max_examples=60)
@given(seed=st.integers(0, 2**32))
def test_whatever_is_damaged_no_other_record_is_lost(block: int, seed: int) -> None:
    log_file.BLOCK = block  # type: ignore[misc]
    chance = random.Random(seed)
    data, starts = log(BODIES)
    at = chance.randrange(len(data))
    size = chance.choice((1, 2, 4, chance.randrange(1, 300)))
    raw = data[:at] + chance.randbytes(size) + data[at + size :]
    edges = [*starts, len(data)]
    untouched = [
        body
        for body, (a, b) in zip(BODIES, pairwise(edges), strict=True)
        if b <= at or a >= at + size
    ]
    bodies, damage = scanned(raw[: len(data)])
    assert [body for body in bodies if body in untouched] == untouched
    assert len(bodies) + len(damage) >= len(untouched)
