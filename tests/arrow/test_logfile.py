import random
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from roquet.arrow import logfile
from roquet.arrow.logfile import Damage, LogFile
from roquet.arrow.records import Records
from roquet.wire import record
from roquet.wire.record import MAGIC_BLANK

HOST = bytes([10, 0, 0, 1, 0, 0, 0x2A, 0x9F])
BEGIN = 3 << 30
"""Where the file lies in its log."""


def log(bodies: list[bytes], *, queues: int = 2) -> tuple[bytes, list[int]]:
    """Records one behind the other, and where each begins."""
    packed, starts = b"", []
    for number, body in enumerate(bodies):
        starts.append(len(packed))
        packed += record.pack(
            number % queues, 0, number // queues, BEGIN + len(packed), 0, 1, HOST, 2, HOST, 0, 0,
            body, b"orders", record.encode_properties({"UNIQ_KEY": f"K{number}"}),
        )  # fmt: skip
    return packed, starts


def found(data: bytes, start: int = 0, stop: int | None = None) -> tuple[list[bytes], list[Damage]]:
    bodies: list[bytes] = []
    damage: list[Damage] = []
    for piece in LogFile(data, BEGIN).walk(start, len(data) if stop is None else stop):
        if isinstance(piece, Damage):
            damage.append(piece)
        else:
            bodies += Records(piece).batch(("body",)).column("body").to_pylist()
    return bodies, damage


BODIES = [b"body %d " % n * (n % 7 + 1) for n in range(50)]


@pytest.fixture(autouse=True)
def small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(logfile, "BLOCK", 700)


@pytest.mark.parametrize("tail", [b"", bytes(5), bytes(5000)])
def test_all_records_come_up_to_the_zeros_behind_them(tail: bytes) -> None:
    assert found(log(BODIES)[0] + tail) == (BODIES, [])


def test_a_file_that_has_no_room_for_the_next_record_ends_with_a_blank() -> None:
    blank = (100).to_bytes(4, "big") + MAGIC_BLANK.to_bytes(4, "big") + b"junk" * 23
    assert found(log(BODIES)[0] + blank) == (BODIES, [])


@given(st.lists(st.integers(0, 4_000), max_size=6))
def test_parts_of_a_file_hold_each_record_once(cuts: list[int]) -> None:
    data, _ = log(BODIES)
    edges = [0, *sorted(min(cut, len(data)) for cut in cuts), len(data)]
    pieces = [found(data, a, b) for a, b in pairwise(edges)]
    assert [body for bodies, _ in pieces for body in bodies] == BODIES
    assert not [damage for _, some in pieces for damage in some]


def test_a_magic_number_inside_a_body_begins_no_record() -> None:
    data, starts = log([b"a", b"xx\xda\xa3\x20\xa7" + bytes(90), b"c"])
    assert found(data, starts[1] + 1) == ([b"c"], [])


def test_a_damaged_body_is_told_and_stepped_over() -> None:
    data, starts = log(BODIES)
    raw = bytearray(data)
    raw[starts[9] + 90] ^= 1
    bodies, (damage,) = found(bytes(raw))
    assert bodies == BODIES[:9] + BODIES[10:]
    assert damage.why == "the checksum of the body disagrees"
    assert (damage.position, damage.size) == (BEGIN + starts[9], starts[10] - starts[9])
    assert damage.found == bytes(raw[starts[9] : starts[10]])


def test_bytes_that_are_no_record_are_stepped_over_to_the_next_one() -> None:
    data, starts = log(BODIES)
    raw = data[: starts[9]] + bytes(starts[12] - starts[9]) + data[starts[12] :]
    bodies, (damage,) = found(raw)
    assert bodies == BODIES[:9] + BODIES[12:]
    assert (damage.why, damage.position) == ("no record begins here", BEGIN + starts[9])
    assert damage.size == starts[12] - starts[9]


def test_the_very_beginning_may_be_damaged() -> None:
    data, starts = log(BODIES)
    bodies, (damage,) = found(b"\xff" * starts[1] + data[starts[1] :])
    assert bodies == BODIES[1:]
    assert damage.position == BEGIN


def test_a_length_inside_that_disagrees_is_damage() -> None:
    data, starts = log(BODIES)
    raw = bytearray(data)
    raw[starts[3] + 84 : starts[3] + 88] = (9999).to_bytes(4, "big")
    bodies, (damage,) = found(bytes(raw))
    assert bodies == BODIES[:3] + BODIES[4:]
    assert "lengths that disagree" in damage.why


def test_a_torn_end_is_the_end() -> None:
    data, starts = log(BODIES)
    for cut in (starts[49] + 4, starts[49] + 40, len(data) - 1):
        bodies, (damage,) = found(data[:cut] + bytes(300))
        assert bodies == BODIES[:49]
        assert damage.is_end
        assert damage.position == BEGIN + starts[49]


@settings(max_examples=60)
@given(st.integers(0, 2**32))
def test_whatever_is_damaged_no_other_record_is_lost(seed: int) -> None:
    chance = random.Random(seed)
    data, starts = log(BODIES)
    at = chance.randrange(len(data))
    size = chance.randrange(1, 300)
    raw = data[:at] + chance.randbytes(size) + data[at + size :]
    edges = [*starts, len(data)]
    untouched = [
        body
        for body, (a, b) in zip(BODIES, pairwise(edges), strict=True)
        if b <= at or a >= at + size
    ]
    bodies, damage = found(raw[: len(data)])
    assert [body for body in bodies if body in untouched] == untouched
    assert len(bodies) + len(damage) >= len(untouched)
