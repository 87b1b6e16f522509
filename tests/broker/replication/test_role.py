from roquet.broker.replication.role import Role, RoleCell
from roquet.rules.replication.acknowledgement import BrokerRole

MASTER, REPLICA = Role(), Role(role=BrokerRole.SLAVE, broker_id=1, master="127.0.0.1:10911")


def test_a_broker_leads_unless_it_is_a_replica() -> None:
    assert MASTER.is_master
    assert not REPLICA.is_master


def test_those_who_follow_the_role_are_told_of_each_change_in_order() -> None:
    cell, seen = RoleCell(MASTER), list[tuple[str, Role, Role]]()
    cell.on_change.append(lambda before, now: seen.append(("first", before, now)))
    cell.on_change.append(lambda before, now: seen.append(("second", before, now)))
    cell.change(REPLICA)
    assert cell.current == REPLICA
    assert seen == [("first", MASTER, REPLICA), ("second", MASTER, REPLICA)]


def test_the_same_role_again_is_no_change() -> None:
    cell, seen = RoleCell(MASTER), list[Role]()
    cell.on_change.append(lambda _, now: seen.append(now))
    cell.change(Role())
    assert seen == []


def test_a_master_that_is_fenced_takes_no_messages() -> None:
    assert MASTER.is_active
    assert not Role(is_fenced=True).is_active
    assert not REPLICA.is_active


def test_a_new_master_is_settled_once_it_has_taken_over() -> None:
    cell = RoleCell(REPLICA)
    assert cell.is_settled
    cell.change(Role(is_fenced=True))
    cell.change(MASTER)
    assert not cell.is_settled
    cell.note_taken_over()
    assert cell.is_settled
    cell.change(REPLICA)
    cell.change(MASTER)
    assert not cell.is_settled, "its log was another broker's in between"


def test_a_master_whose_lease_lapses_stays_settled() -> None:
    cell = RoleCell(MASTER)
    cell.change(Role(is_fenced=True))
    assert cell.is_settled


def test_a_broker_that_does_not_know_its_role_is_not_settled() -> None:
    cell = RoleCell(Role(role=BrokerRole.SLAVE, broker_id=-1, is_fenced=True))
    assert not cell.is_settled
    cell.change(REPLICA)
    assert cell.is_settled
