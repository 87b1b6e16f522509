"""Routes and assignments, behind the address that the client came by."""

from tests.proxy.conftest import User

from roquet.proxy.protos import definition_pb2 as pb
from roquet.proxy.protos import service_pb2 as service
from roquet.proxy.proxy import Proxy

ENDPOINTS = pb.Endpoints(
    scheme=pb.DOMAIN_NAME, addresses=[pb.Address(host="balancer.example", port=4433)]
)


async def test_every_queue_is_behind_the_address_that_the_client_names(proxy: Proxy) -> None:
    request = service.QueryRouteRequest(topic=pb.Resource(name="FIFOT"), endpoints=ENDPOINTS)
    route = await User(proxy).call("QueryRoute", request)
    assert [queue.id for queue in route.message_queues] == [0, 1, 2, 3]
    for queue in route.message_queues:
        assert queue.broker == pb.Broker(name="broker-a", id=0, endpoints=ENDPOINTS)
        assert queue.permission == pb.READ_WRITE
        assert list(queue.accept_message_types) == [pb.FIFO]


async def test_a_broker_is_assigned_as_a_whole_and_queue_by_queue_to_ordered_groups(
    proxy: Proxy,
) -> None:
    async def assigned(group: str) -> list[int]:
        request = service.QueryAssignmentRequest(
            topic=pb.Resource(name="FIFOT"), group=pb.Resource(name=group)
        )
        answer = await User(proxy).call("QueryAssignment", request)
        return [it.message_queue.id for it in answer.assignments]

    assert await assigned("g") == [-1]
    assert await assigned("G_fifo") == [0, 1, 2, 3]


async def test_a_topic_that_does_not_exist_is_named_with_the_command_that_makes_it(
    proxy: Proxy,
) -> None:
    request = service.QueryRouteRequest(topic=pb.Resource(name="nowhere"))
    answer = await User(proxy).call("QueryRoute", request)
    assert answer.status.code == pb.TOPIC_NOT_FOUND
    assert "roquet topic create nowhere" in answer.status.message
