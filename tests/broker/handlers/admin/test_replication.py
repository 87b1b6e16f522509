"""What controllers and other brokers of the group ask and tell."""

import pytest
from tests.broker.conftest import LocalBroker

from roquet.broker.replication.role import Role
from roquet.model.errors import CallRefused
from roquet.rules.replication.acknowledgement import BrokerRole
from roquet.wire.calls.replication import ExchangeHaInfo, NotifyRoleChanged


async def test_a_master_says_where_it_streams_its_log(broker: LocalBroker) -> None:
    reply = broker.ask(ExchangeHaInfo())
    host, _, port = (reply.master_ha_address or "").rpartition(":")
    assert host == broker.log.address.rpartition(":")[0]
    assert int(port) == broker.replication.stream_server.port
    assert reply.master_address == broker.log.address
    assert reply.master_flush_offset == broker.log.store.flushed_position


async def test_a_replica_has_no_stream(broker: LocalBroker) -> None:
    broker.replication.role.change(Role(role=BrokerRole.SLAVE, broker_id=1))
    assert broker.ask(ExchangeHaInfo()).master_ha_address is None


async def test_nobody_says_whom_a_broker_has_to_follow(broker: LocalBroker) -> None:
    with pytest.raises(CallRefused, match="takes no address to follow"):
        broker.ask(ExchangeHaInfo(master_ha_address="a:1"))


async def test_a_notice_without_a_controller_is_ignored(broker: LocalBroker) -> None:
    before = broker.replication.role.current
    assert broker.ask(NotifyRoleChanged(master_broker_id=9)) is None
    assert broker.replication.role.current == before
