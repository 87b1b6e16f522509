"""Who acts as master, and whose progress a returning master believes."""

from roquet.model.topic import DataVersion
from roquet.rules.replication.acting_master import (
    ReturnFacts,
    acts_as_master,
    is_as_new,
    may_take_progress,
)


def test_the_replica_with_the_lowest_id_acts_while_the_master_is_away() -> None:
    assert acts_as_master({1, 2}, 1)
    assert not acts_as_master({1, 2}, 2)
    assert acts_as_master({2}, 2)


def test_nobody_acts_while_the_master_lives() -> None:
    assert not acts_as_master({0, 1}, 1)
    assert not acts_as_master({0}, 0)


def test_a_replica_that_name_servers_do_not_know_does_not_act() -> None:
    assert not acts_as_master((), 1)
    assert not acts_as_master({2}, 1)


def test_progress_of_a_longer_log_is_not_believed() -> None:
    assert may_take_progress(ReturnFacts(own_end=10, replica_end=10))
    assert may_take_progress(ReturnFacts(own_end=10, replica_end=9))
    assert not may_take_progress(ReturnFacts(own_end=10, replica_end=11))


def test_a_table_is_taken_unless_it_is_older() -> None:
    own = DataVersion(counter=2)
    assert is_as_new(DataVersion(counter=2), own)
    assert is_as_new(DataVersion(counter=3), own)
    assert not is_as_new(DataVersion(counter=1), own)
    assert not is_as_new(None, own)
