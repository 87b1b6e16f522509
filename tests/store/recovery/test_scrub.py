from collections.abc import Callable

import pytest
from tests.store.conftest import NOW, DataDir, fill

from roquet.store.key_index.index_check import IndexCheck
from roquet.store.store import Store
from roquet.store.writer import AppendResult


def reopened_with(
    store_dir: DataDir, damage: Callable[[list[AppendResult]], None]
) -> tuple[Store, list[AppendResult]]:
    store = store_dir.open()
    appended = fill(store, 120)
    store.close(NOW)
    damage(appended)
    return store_dir.open(), appended


@pytest.mark.parametrize("budget", [1, 500, 5000, 1 << 20])
def test_a_scrub_finds_every_hole_whatever_its_pace(store_dir: DataDir, budget: int) -> None:
    def damage(appended: list[AppendResult]) -> None:
        store_dir.bytes_at(appended[0].position + 100, 3)[:] = b"bad"
        store_dir.bytes_at(appended[50].position, 2000)[:] = bytes(2000)
        store_dir.bytes_at(appended[-1].position, 20)[:] = bytes(20)

    store, _ = reopened_with(store_dir, damage)
    steps = 0
    while store.scrub(budget):
        steps += 1
    lost = [(x.first, x.stop) for d in store.damage for x in d.lost]
    assert lost[0] == (0, 1)
    assert lost[1][0] == 50
    assert lost[-1][1] == 120
    assert store.damage[-1].stop == store.end_position
    assert steps > 20 or budget > 500


def test_a_whole_log_has_no_holes(store_dir: DataDir) -> None:
    store, _ = reopened_with(store_dir, lambda _: None)
    while store.scrub(700):
        pass
    assert store.damage == []


def test_records_of_this_process_are_not_checked(store: Store) -> None:
    fill(store, 20)
    assert not store.scrub(1)


def test_a_whole_file_may_be_a_hole(store_dir: DataDir) -> None:
    def damage(_: list[AppendResult]) -> None:
        store_dir.bytes_at(8192, 8192)[:] = b"\xff" * 8192

    store, _ = reopened_with(store_dir, damage)
    while store.scrub(100):
        pass
    assert [(d.start, d.stop) for d in store.damage] == [(8192, 16384)]
    assert sum(x.stop - x.first for d in store.damage for x in d.lost) > 20


def test_a_hole_up_to_where_it_ends_is_found(store_dir: DataDir, store: Store) -> None:
    appended = fill(store, 30)
    store.close(NOW)
    store = store_dir.open()
    store_dir.bytes_at(appended[-1].position, 20)[:] = bytes(20)
    while store.scrub(100):
        pass
    assert [(d.start, d.stop) for d in store.damage] == [
        (appended[-1].position, store.end_position)
    ]


def test_a_range_that_cannot_be_checked_is_skipped(store_dir: DataDir) -> None:
    def damage(appended: list[AppendResult]) -> None:
        for number in (5, 60):
            store_dir.bytes_at(appended[number].position + 100, 3)[:] = b"bad"

    store, appended = reopened_with(store_dir, damage)
    assert appended[6].position < 5_000 < appended[60].position
    assert store.skip_scrub(5_000)
    while store.scrub(1 << 20):
        pass
    assert not store.skip_scrub(5_000)
    starts = {d.start for d in store.damage}
    assert appended[60].position in starts
    assert appended[5].position not in starts


@pytest.mark.parametrize("skipped", [1, 5_000, 1 << 30])
def test_a_skip_that_ends_inside_a_record_is_no_damage(store_dir: DataDir, skipped: int) -> None:
    store, appended = reopened_with(store_dir, lambda _: None)
    assert skipped not in [each.position for each in appended]
    store.skip_scrub(skipped)
    while store.scrub(700):
        pass
    assert store.damage == []


def test_a_skip_that_ends_inside_the_last_record_is_no_damage(store_dir: DataDir) -> None:
    store, appended = reopened_with(store_dir, lambda _: None)
    store.skip_scrub(appended[-1].position + 1)
    while store.scrub(700):
        pass
    assert store.damage == []


def test_the_scrub_of_the_log_waits_for_the_check_of_keys(
    store_dir: DataDir, monkeypatch: pytest.MonkeyPatch
) -> None:
    store, _ = reopened_with(store_dir, lambda _: None)
    looking = iter([False])
    resume = IndexCheck.resume
    monkeypatch.setattr(
        IndexCheck, "resume", lambda self: next(looking, None) is None and resume(self)
    )
    steps = 0
    while store.scrub(1 << 30):
        steps += 1
    assert (steps, store.damage) == (2, [])  # one that waited, and one for all of the log


@pytest.mark.parametrize("budget", [700, 1 << 20])
@pytest.mark.parametrize(("start", "lost"), [(0, (0, 38)), (8192, (38, 76))])
def test_a_zeroed_file_is_a_hole_wherever_it_lies(
    store_dir: DataDir, start: int, lost: tuple[int, int], budget: int
) -> None:
    def damage(_: list[AppendResult]) -> None:
        store_dir.bytes_at(start, 8192)[:] = bytes(8192)

    store, _ = reopened_with(store_dir, damage)
    while store.scrub(budget):
        pass
    assert [(d.start, d.stop) for d in store.damage] == [(start, start + 8192)]
    assert [(x.first, x.stop) for d in store.damage for x in d.lost] == [lost]


def test_zeros_in_the_place_of_messages_are_a_hole_up_to_the_end_of_their_file(
    store_dir: DataDir,
) -> None:
    def damage(appended: list[AppendResult]) -> None:
        position = appended[30].position
        store_dir.bytes_at(position, 8192 - position)[:] = bytes(8192 - position)

    store, appended = reopened_with(store_dir, damage)
    while store.scrub(1 << 20):
        pass
    assert [(d.start, d.stop) for d in store.damage] == [(appended[30].position, 8192)]
