"""Query assignment and set request mode: the broker divides queues, and groups pull or pop.

As in the genuine broker, the reply has all queues for broadcasting, null for an unknown topic or a
group without members, and an empty list for a client that is not in the group. Unlike there, an
unknown strategy is refused with a remark.
"""

from collections.abc import Sequence
from typing import Final

from roquet.broker.broker import BrokerComponent
from roquet.broker.control import ControlPlane
from roquet.broker.coordination import GroupCoordination
from roquet.broker.refusals import invalid_parameter, no_group, no_permission, no_topic
from roquet.broker.services.peer_brokers import TopicLocation
from roquet.broker.tables.broker_tables import BrokerTables
from roquet.model.errors import CallRefused
from roquet.model.names import is_retry, is_system_group
from roquet.model.queue import MessageQueue
from roquet.model.subscription import MessageModel
from roquet.net.router import HandlerReply, Peer
from roquet.rules.allocate import BROKER_DECIDED, STRATEGIES, GroupAssignment
from roquet.rules.consumption.pop import member_pop_queues
from roquet.wire.call import Reply
from roquet.wire.calls.bodies import (
    POP,
    PULL,
    AssignmentQuery,
    QueueAssignment,
    QueueAssignments,
    RequestMode,
)
from roquet.wire.calls.heartbeat import QueryAssignment, SetRequestMode
from roquet.wire.codes import ResponseCode
from roquet.wire.fastjson import codec
from roquet.wire.request_body import decode_body

SNAPSHOT: Final = "snapshot"
"""The attachment with the number of the broker's decision."""

NAME_LENGTH_MAX: Final = 255
"""Characters of a strategy's name or a client's id that a remark repeats."""


class AssignmentHandler(BrokerComponent, frozen=True):
    """Divides queues among the members of a group."""

    tables: BrokerTables
    coordination: GroupCoordination
    control: ControlPlane

    def query(self, call: QueryAssignment, _peer: Peer) -> HandlerReply:
        """Return the queues of one member."""
        body = decode_body(call.body, AssignmentQuery)
        _check_query(body)
        return self._answer(body)

    async def set_mode(self, call: SetRequestMode, _peer: Peer) -> Reply:
        """Set whether a group pulls or pops a topic; checks are in the genuine broker's order."""
        body = decode_body(call.body, RequestMode)
        topic, group = body.topic, body.consumer_group
        if is_retry(topic):
            raise no_permission(f"retry topic {topic} is always pulled")
        if is_system_group(group):
            raise no_permission(f"group {group} is the system's own")
        if self.tables.topics.get(topic) is None:
            raise no_topic(f"Topic {topic} not exist!")
        if self.tables.groups.find(group, self.control.clock.now_ms()) is None:
            raise no_group(f"Group {group} not exist!")
        if body.mode not in (PULL, POP):
            raise invalid_parameter(
                f"mode {body.mode[:NAME_LENGTH_MAX]!r} is neither {PULL} nor {POP}"
            )
        await self.tables.request_modes.change(lambda: self.tables.request_modes.begin_put(body))
        self.coordination.notify([group])
        return Reply()

    async def _answer(self, body: AssignmentQuery) -> Reply:
        home = await self.coordination.peer_brokers.home(body.topic)
        if home is None:
            return _reply(None)
        mode = self.coordination.request_mode(body.topic, body.consumer_group)
        if body.message_model is MessageModel.BROADCASTING:
            return _reply(home.queues, mode.mode)
        group = self.tables.clients.consumers(body.consumer_group)
        if group is None or body.message_model is not MessageModel.CLUSTERING:
            return _reply(None)
        members = group.client_ids
        if body.client_id in members:
            self.coordination.rebalance.assignments.note_strategy(
                body.consumer_group, body.client_id, body.strategy_name
            )
        if not home.queues:
            return _reply(())
        number: int | None = None
        if body.strategy_name in BROKER_DECIDED:
            shares, number = await self._decided(body, home)
        else:
            shares = self.coordination.rebalance.by_rule(
                body.consumer_group, body.topic, body.strategy_name, home
            )
        mine = shares.get(body.client_id, ())
        if mode.mode == POP:
            mine = member_pop_queues(
                body.client_id, home.queues, members, shares, mode.pop_share_queue_num
            )
        return _reply(mine, mode.mode, number)

    async def _decided(
        self, body: AssignmentQuery, home: TopicLocation
    ) -> tuple[GroupAssignment, int | None]:
        """The assignment that this broker decides, and the number of the decision."""
        name = self.control.settings.config.broker_name
        if home.first != name:
            raise CallRefused(
                ResponseCode.NOT_LEADER_FOR_QUEUE,
                f"{home.first}, not {name}, divides the queues of topic {body.topic}: it is the "
                "first by name of the brokers that hold it",
            )
        snapshot = await self.coordination.rebalance.decide(
            body.consumer_group, body.topic, body.strategy_name, home
        )
        return ({}, None) if snapshot is None else (snapshot.shares, snapshot.number)


def _check_query(body: AssignmentQuery) -> None:
    for name in ("topic", "consumer_group", "client_id"):
        if not getattr(body, name):
            raise invalid_parameter(f"{name} is missing: who asks for what?")
    known = (*STRATEGIES, *sorted(BROKER_DECIDED))
    if body.message_model is MessageModel.CLUSTERING and body.strategy_name not in known:
        raise invalid_parameter(
            f"strategy {body.strategy_name[:NAME_LENGTH_MAX]!r} is unknown here; "
            f"there is {', '.join(known)}"
        )


def _reply(
    queues: Sequence[MessageQueue] | None, mode: str = PULL, number: int | None = None
) -> Reply:
    attachments = None if number is None else {SNAPSHOT: str(number)}
    assignments = [
        QueueAssignment(message_queue=queue, mode=mode, attachments=attachments)
        for queue in queues or ()
    ]
    body = QueueAssignments(message_queue_assignments=None if queues is None else assignments)
    return Reply(body=codec.dumps(body))
