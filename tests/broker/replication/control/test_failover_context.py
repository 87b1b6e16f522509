"""What a broker knows of its standing in the group."""

from roquet.broker.replication.control.failover_context import GroupStanding
from roquet.rules.replication.role_change import ObeyedTerm


def test_a_broker_that_has_just_been_started_leads_nothing() -> None:
    standing = GroupStanding(4)
    assert standing.own == ObeyedTerm(broker_id=0, epoch=4)
    assert standing.leading is None
    assert standing.view is None


def test_a_master_leads_in_its_epoch() -> None:
    standing = GroupStanding(4)
    standing.own = ObeyedTerm(broker_id=2, epoch=5, master=2)
    assert standing.leading == (2, 5)
    standing.own = ObeyedTerm(broker_id=2, epoch=6, master=1)
    assert standing.leading is None
