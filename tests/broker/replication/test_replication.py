from typing import Any

from tests.broker.replication.conftest import MakeParts

from roquet.broker.broker import Broker
from roquet.broker.replication.fixed_roles import FixedRoles
from roquet.broker.replication.replication import Replication
from roquet.testing.clock import in_virtual_time


class RoleReader:
    """A handler that names the part."""

    def __init__(self, replication: Replication) -> None:
        self.replication = replication


def test_it_is_a_part_that_handlers_can_name(broker: Broker) -> None:
    assert broker.make(RoleReader).replication is broker.replication
    assert broker.replication.role.current.is_master
    assert len(broker.replication.stream_server) == 0


@in_virtual_time
async def test_its_parts_share_one_role(parts: MakeParts) -> None:
    made = parts()
    nowhere: Any = None
    part = Replication(
        mode=FixedRoles(made.log, made.settings, made.clock, nowhere),
        role=made.role,
        acknowledgements=made.acknowledgements,
        stream_server=made.server,
        stream_client=made.client,
    )
    assert part.stream_client.facts.master is None
    assert part.role.current.is_active
