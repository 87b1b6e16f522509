"""What a broker does after its controller has said who leads."""

import pytest

from roquet.model.topic import DataVersion
from roquet.rules.replication.role_change import (
    AdoptSet,
    AskForElection,
    FollowMaster,
    GroupView,
    LeadGroup,
    ObeyedTerm,
    ReturnFacts,
    RoleStep,
    StopLeading,
    acts_as_master,
    is_as_new,
    may_take_progress,
    obeyed,
    role_step,
)

ALONE = frozenset({1})
TWO = frozenset({1, 2})

STARTED = ObeyedTerm(broker_id=1, epoch=4)
"""A broker whose log ends in epoch 4, and that has just been started."""

LEADING = ObeyedTerm(broker_id=1, epoch=4, master=1, set_version=7)

FOLLOWING = ObeyedTerm(broker_id=1, epoch=4, master=2, address="b:1")


def led_by(
    master: int,
    epoch: int,
    *,
    version: int = 7,
    address: str = "b:1",
    members: frozenset[int] = TWO,
) -> GroupView:
    return GroupView(
        epoch=epoch, master=master, address=address, members=members, set_version=version
    )


def test_a_broker_that_is_elected_becomes_master() -> None:
    step = LeadGroup(epoch=5, members=ALONE, set_version=8)
    for own in (STARTED, FOLLOWING, LEADING):
        assert role_step(led_by(1, 5, version=8, members=ALONE), own) == step
    leading = ObeyedTerm(broker_id=1, epoch=5, master=1, set_version=8)
    assert obeyed(FOLLOWING, step) == leading
    assert leading.leads


def test_a_master_whose_directory_is_from_before_its_epoch_does_not_begin_it_again() -> None:
    resigning = AskForElection(epoch=5, resigns=True)
    for own in (STARTED, FOLLOWING):
        assert role_step(led_by(1, 5), own) == resigning, "others have joined since the election"


def test_a_broker_follows_the_master_of_a_later_epoch() -> None:
    step = FollowMaster(epoch=5, master=2, address="b:1")
    for own in (STARTED, FOLLOWING, LEADING):
        assert role_step(led_by(2, 5), own) == step
    assert obeyed(LEADING, step) == ObeyedTerm(broker_id=1, epoch=5, master=2, address="b:1")
    assert not obeyed(LEADING, step).leads


def test_a_started_broker_follows_the_master_of_the_epoch_of_its_log() -> None:
    assert role_step(led_by(2, 4), STARTED) == FollowMaster(epoch=4, master=2, address="b:1")


def test_a_master_that_has_moved_is_followed_to_its_new_address() -> None:
    assert role_step(led_by(2, 4), FOLLOWING) is None
    moved = role_step(led_by(2, 4, address="c:1"), FOLLOWING)
    assert moved == FollowMaster(epoch=4, master=2, address="c:1")


def test_a_late_answer_changes_nothing() -> None:
    for own in (STARTED, FOLLOWING, LEADING):
        assert role_step(led_by(2, 3), own) is None
        assert role_step(led_by(1, 3), own) is None
        assert role_step(GroupView(epoch=3), own) is None


def test_a_master_adopts_a_set_of_a_later_version_only() -> None:
    step = AdoptSet(members=TWO, set_version=8)
    assert role_step(led_by(1, 4, version=8), LEADING) == step
    assert role_step(led_by(1, 4, version=7), LEADING) is None
    assert obeyed(LEADING, step).set_version == 8
    assert obeyed(LEADING, step).leads


def test_a_group_without_a_master_needs_an_election() -> None:
    for own in (STARTED, FOLLOWING, LEADING):
        step = role_step(GroupView(epoch=5), own)
        assert step == AskForElection(epoch=5)
        assert obeyed(own, step) == ObeyedTerm(broker_id=1, epoch=5)
    assert role_step(GroupView(epoch=4), STARTED) == AskForElection(epoch=4)


def test_a_master_that_was_started_again_does_not_go_on_in_its_epoch() -> None:
    assert role_step(led_by(1, 4), STARTED) == AskForElection(epoch=4, resigns=True)


@pytest.mark.parametrize(
    ("view", "own", "reason"),
    [
        (led_by(2, 4), LEADING, "brokers 1 and 2 are both said to lead in epoch 4"),
        (led_by(3, 4), FOLLOWING, "brokers 2 and 3 are both said to lead in epoch 4"),
        (led_by(1, 4), FOLLOWING, "brokers 2 and 1 are both said to lead in epoch 4"),
        (led_by(2, 5, address=""), LEADING, "broker 2 leads in epoch 5 without an address"),
        (
            GroupView(epoch=5, master=1, address="b:1", members=frozenset({2, 3})),
            LEADING,
            r"the set \[2, 3\] lacks its master 1",
        ),
    ],
)
def test_nobody_leads_on_after_an_answer_that_cannot_be_true(
    view: GroupView, own: ObeyedTerm, reason: str
) -> None:
    step = role_step(view, own)
    assert isinstance(step, StopLeading)
    with pytest.raises(ValueError, match=reason):
        raise ValueError(step.reason)
    assert obeyed(own, step) == ObeyedTerm(broker_id=1, epoch=4)


def test_a_broker_that_leads_no_more_obeys_the_same_epoch_again_if_another_leads_in_it() -> None:
    stopped = obeyed(FOLLOWING, StopLeading("contradiction"))
    assert role_step(led_by(2, 4), stopped) == FollowMaster(epoch=4, master=2, address="b:1")


def test_every_step_leaves_a_term_that_is_not_older() -> None:
    steps: list[RoleStep] = [
        LeadGroup(epoch=5, members=ALONE, set_version=8),
        FollowMaster(epoch=5, master=2, address="b:1"),
        AdoptSet(members=TWO, set_version=8),
        AskForElection(epoch=4),
        StopLeading(""),
    ]
    assert all(obeyed(own, step).epoch >= 4 for own in (LEADING, FOLLOWING) for step in steps)


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
