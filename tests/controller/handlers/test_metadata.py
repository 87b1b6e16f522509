from tests.controller.conftest import broker, controller

from roquet.testing.clock import in_virtual_time
from roquet.wire.calls.controller import GetControllerMetadata


@in_virtual_time
async def test_a_lone_controller_names_itself() -> None:
    async with controller(controller_id="n0", controllers="g1"), broker(1) as one:
        reply = await one.channel.call(GetControllerMetadata())
        assert (reply.group, reply.controller_leader_id, reply.is_leader) == ("g1", "n0", True)
        assert reply.peers == "n0:127.0.0.1:9878;"
