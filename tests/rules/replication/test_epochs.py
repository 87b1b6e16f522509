import pytest
from hypothesis import given
from hypothesis import strategies as st

from roquet.model.epoch import EpochEntry
from roquet.rules.replication import epochs as rules


def epochs(*pairs: tuple[int, int]) -> rules.Epochs:
    return tuple(EpochEntry(epoch, start) for epoch, start in pairs)


THREE = epochs((1, 100), (2, 300), (3, 500))
"""Of EpochFileCacheTest, as most cases here."""


def test_the_last_epoch_of_no_log_is_no_epoch() -> None:
    assert rules.last_epoch(()) == rules.NO_EPOCH == -1
    assert rules.last_epoch(THREE) == 3


def test_an_election_begins_an_epoch_at_the_logs_end() -> None:
    assert rules.append_epoch((), 1, 0) == epochs((1, 0))
    assert rules.append_epoch(epochs((1, 0)), 4, 77) == epochs((1, 0), (4, 77))
    with pytest.raises(AssertionError, match="epochs rise"):
        rules.append_epoch(THREE, 3, 900)


def test_an_epoch_without_a_byte_is_replaced() -> None:
    assert rules.append_epoch(epochs((1, 0), (2, 77)), 3, 77) == epochs((1, 0), (3, 77))
    assert rules.append_epoch(epochs((1, 0)), 2, 0) == epochs((2, 0))


def test_masters_elected_at_one_end_leave_logs_that_are_told_apart() -> None:
    first = rules.append_epoch(epochs((1, 0)), 2, 500)
    second = rules.append_epoch(first, 3, 500)
    # The first wrote 40 bytes that nobody got, the second wrote 90 others in their place.
    assert rules.consistent_point(first, 540, second, 590) == 500


def test_a_cut_drops_the_epochs_behind_it() -> None:
    assert rules.truncate_epochs(THREE, 150) == THREE[:1]
    assert rules.truncate_epochs(THREE, 500) == THREE[:2]
    assert rules.truncate_epochs(THREE, 100) == ()
    assert rules.truncate_epochs(THREE, 501) == THREE


def test_epochs_whose_files_are_deleted_are_dropped() -> None:
    assert rules.drop_expired_epochs(THREE, 100) == THREE
    assert rules.drop_expired_epochs(THREE, 300) == THREE
    assert rules.drop_expired_epochs(THREE, 301) == THREE[1:]
    assert rules.drop_expired_epochs(THREE, 10_000) == THREE[2:], "the log grows in the last one"
    assert rules.drop_expired_epochs((), 10) == ()


def test_every_position_from_the_first_epoch_on_has_an_epoch() -> None:
    assert rules.extent_at(THREE, 99) is None
    assert rules.extent_at(THREE, 100) == rules.EpochExtent(THREE[0], 300)
    assert rules.extent_at(THREE, 350) == rules.EpochExtent(THREE[1], 500)
    assert rules.extent_at(THREE, 10_000) == rules.EpochExtent(THREE[2], None)
    assert rules.extent_at((), 0) is None


@pytest.mark.parametrize(
    ("own", "own_end", "master", "master_end", "point"),
    [
        (THREE, 700, epochs((1, 100), (2, 300), (3, 450)), 600, 450),
        (THREE, 700, THREE, 600, 600),
        (THREE, 600, THREE, 700, 600),
        (THREE, 700, epochs((1, 200), (2, 400), (3, 600)), 800, None),
        ((*THREE, EpochEntry(4, 800)), 900, THREE, 700, 700),
        (THREE, 700, (*THREE, EpochEntry(4, 650)), 900, 650),
        (THREE, 700, (), 0, None),
        ((), 700, THREE, 700, None),
    ],
)
def test_logs_are_equal_up_to_the_consistent_point(
    own: rules.Epochs, own_end: int, master: rules.Epochs, master_end: int, point: int | None
) -> None:
    assert rules.consistent_point(own, own_end, master, master_end) == point


HISTORY = st.lists(st.tuples(st.integers(1, 3), st.integers(0, 4)), min_size=1, max_size=6)


def grow(
    log: list[int], known: rules.Epochs, history: list[tuple[int, int]], after: int
) -> tuple[list[int], rules.Epochs]:
    """A log whose bytes are named by their epochs, after more elections and writes."""
    log, epoch = list(log), after
    for more, count in history:
        epoch += more
        known = rules.append_epoch(known, epoch, len(log))
        log += [epoch] * count
    return log, known


@given(HISTORY, HISTORY, HISTORY, st.integers(0, 24))
def test_what_the_epochs_call_equal_is_equal(
    shared: list[tuple[int, int]],
    own_only: list[tuple[int, int]],
    master_only: list[tuple[int, int]],
    got: int,
) -> None:
    """Both replicate one log, of which one has got only some; each is then elected without the
    other, in epochs that nobody else has."""
    log, known = grow([], (), shared, 0)
    own, own_epochs = grow(log[:got], rules.truncate_epochs(known, got), own_only, 100)
    master, master_epochs = grow(log, known, master_only, 200)
    point = rules.consistent_point(own_epochs, len(own), master_epochs, len(master))
    if point is None:
        assert got == 0 or not log
        return
    assert own[:point] == master[:point]
    assert point >= min(got, len(log)), "nothing that both replicated is cut"
    cut = rules.truncate_epochs(own_epochs, point)
    assert all(entry in master_epochs for entry in cut), "no epoch is left that nobody has"
