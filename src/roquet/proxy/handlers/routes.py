"""Routes and assignments: which queues clients send to and receive from."""

from collections.abc import Sequence

from roquet.model.queue import MessageQueue
from roquet.proxy.caller import Caller
from roquet.proxy.cluster import ProxiedCluster
from roquet.proxy.protos import definition_pb2 as pb
from roquet.proxy.protos import service_pb2 as service
from roquet.rules.message_type import ALL_TYPES, MessageType, accepted_types
from roquet.rules.proxy.status import ProxyRefusal, StatusCode
from roquet.rules.proxy.validation import check_group, check_topic


class RoutesHandler:
    """Answers where the queues of a topic are: behind the address that the client came by."""

    __slots__ = ("_cluster",)

    def __init__(self, cluster: ProxiedCluster) -> None:
        self._cluster = cluster

    async def query_route(
        self, request: service.QueryRouteRequest, _caller: Caller
    ) -> service.QueryRouteResponse:
        """The queues of a topic, readable ones before writable ones before those that are both."""
        topic = check_topic(request.topic.name)
        if await self._cluster.creation.is_wanted(topic):
            readable = writable = set(await self._cluster.creation.queues(topic))
            types: Sequence[MessageType] = ALL_TYPES
        else:
            readable = set(await self._cluster.readable(topic))
            writable = set(await self._cluster.writable(topic))
            types = accepted_types(await self._cluster.topic_type(topic))
        kinds = [kind.name for kind in types]
        parts = (
            (readable - writable, pb.READ),
            (writable - readable, pb.WRITE),
            (readable & writable, pb.READ_WRITE),
        )
        queues = [
            pb.MessageQueue(
                topic=pb.Resource(name=topic),
                id=queue.queue_id,
                permission=permission,
                broker=_broker(queue, request.endpoints),
                accept_message_types=kinds,
            )
            for part, permission in parts
            for queue in sorted(part)
        ]
        return service.QueryRouteResponse(message_queues=queues)

    async def query_assignment(
        self, request: service.QueryAssignmentRequest, _caller: Caller
    ) -> service.QueryAssignmentResponse:
        """Queues of a push consumer: each broker as a whole, or each queue of an ordered group."""
        topic, group = check_topic(request.topic.name), check_group(request.group.name)
        readable = await self._cluster.readable(topic)
        if not readable:
            raise ProxyRefusal(StatusCode.FORBIDDEN, f"topic {topic} has no queue that may be read")
        settings = await self._cluster.group(group, topic)
        queues = readable if settings.consume_message_orderly else _brokers(readable)
        return service.QueryAssignmentResponse(
            assignments=[
                pb.Assignment(
                    message_queue=pb.MessageQueue(
                        topic=pb.Resource(name=topic),
                        id=queue.queue_id,
                        permission=pb.READ_WRITE,
                        broker=_broker(queue, request.endpoints),
                    )
                )
                for queue in queues
            ]
        )


def _brokers(queues: Sequence[MessageQueue]) -> Sequence[MessageQueue]:
    """One queue with id -1, which means any, for each broker."""
    names = sorted({queue.broker_name for queue in queues})
    return [MessageQueue(queues[0].topic, name, -1) for name in names]


def _broker(queue: MessageQueue, endpoints: pb.Endpoints) -> pb.Broker:
    return pb.Broker(name=queue.broker_name, id=0, endpoints=endpoints)
