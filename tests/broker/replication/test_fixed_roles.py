"""A broker whose settings say what it is."""

from pathlib import Path

from tests.broker.conftest import config_of

from roquet.broker.app import BrokerServer
from roquet.rules.replication.acknowledgement import BrokerRole


async def test_a_replica_follows_the_address_that_the_settings_name(tmp_path: Path) -> None:
    async with BrokerServer(
        config_of(broker_role=BrokerRole.SLAVE, broker_id=1, ha_master="127.0.0.1:9")
    ) as server:
        role = server.broker.replication.role
        assert role.current.master_stream == "127.0.0.1:9"
        server.broker.control.settings.change({"haMasterAddress": "127.0.0.1:8"}, 0)
        assert role.current.master_stream == "127.0.0.1:8"
        server.broker.control.settings.change({"haMasterAddress": ""}, 0)
        assert role.current.master_stream == "127.0.0.1:8", "until a name server says another one"
