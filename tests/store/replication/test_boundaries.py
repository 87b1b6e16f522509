"""Boundaries: the positions of a log at which no record is divided."""

from tests.store.conftest import StoreDirectory, fill

from roquet.store.replication.boundaries import has_blank_at, is_boundary, last_record, whole_end


def test_records_blanks_and_files_begin_at_boundaries(store_dir: StoreDirectory) -> None:
    store, opened = store_dir.open_parts()
    results = fill(store, 60)
    blank = max(r.position + r.size for r in results if r.position < 8192)
    starts = {r.position for r in results} | {blank, 8192, store.end_position}
    found = {at for at in range(store.end_position + 1) if is_boundary(opened.log, at)}
    assert found == starts
    assert has_blank_at(opened.log, blank)
    assert not has_blank_at(opened.log, 0)
    assert not has_blank_at(opened.log, store.end_position)


def test_the_begin_of_a_torn_record_is_a_boundary() -> None:
    master = StoreDirectory().open()
    results = fill(master, 3)
    replica, opened = StoreDirectory().open_parts()
    stop = results[2].position
    replica.raw.append(0, master.raw.read(0, stop + 50))
    assert whole_end(opened.log) == stop
    assert is_boundary(opened.log, stop)
    assert not is_boundary(opened.log, stop + 1)
    replica.raw.truncate(stop)
    assert replica.raw.end == stop


def test_the_last_whole_record_is_found_behind_queues_and_in_front_of_a_torn_one() -> None:
    master = StoreDirectory().open()
    results = fill(master, 60)
    replica, opened = StoreDirectory().open_parts()
    assert last_record(opened.log, opened.log.last, opened.log.end) is None
    for number in (3, 40, 59):
        stop, last = results[number].position, results[number - 1]
        while replica.raw.end < stop + 50:
            at = replica.raw.end
            replica.raw.append(at, master.raw.read(at, stop + 50 - at))
        assert last_record(opened.log, opened.log.last, opened.log.end) == (
            last.position,
            last.size,
        )
        replica.raw.dispatch()
        assert last_record(opened.log, opened.log.last, opened.log.end) == (
            last.position,
            last.size,
        )
