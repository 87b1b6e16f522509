import inspect
from typing import Any

import pytest
from tests.broker.conftest import FakePeer, LocalBroker, heartbeat_of, not_none, refuses

from roquet.model.errors import FieldError
from roquet.model.queue import MessageQueue
from roquet.model.subscription import MessageModel, Subscription
from roquet.wire.calls.bodies import AssignmentQuery, QueueAssignment, QueueAssignments, RequestMode
from roquet.wire.calls.heartbeat import ConsumersChanged, QueryAssignment, SetRequestMode
from roquet.wire.codes import ResponseCode
from roquet.wire.fastjson import codec


@pytest.fixture
def group(broker: LocalBroker) -> dict[str, Any]:
    """Three members that listen to a topic of eight queues; by their ids."""
    broker.put_topic("orders", 8)
    return {client_id: join(broker, FakePeer(), client_id) for client_id in ("c1", "c2", "c3")}


def join(broker: LocalBroker, peer: FakePeer, client_id: str, group: str = "billing") -> Any:
    broker.beat(heartbeat_of(client_id, Subscription(topic="orders"), group=group), peer)
    return peer


async def asked(
    broker: LocalBroker, member: str, strategy: str = "AVG", **fields: Any
) -> list[QueueAssignment] | None:
    arguments = {"topic": "orders", "consumer_group": "billing", **fields}
    body = AssignmentQuery(client_id=member, strategy_name=strategy, **arguments)
    answer = broker.ask(QueryAssignment(body=codec.dumps(body)))
    reply = not_none(await answer if inspect.isawaitable(answer) else answer)
    return codec.loads(reply.body, QueueAssignments).message_queue_assignments


async def numbers(
    broker: LocalBroker, member: str, strategy: str = "AVG", **fields: Any
) -> list[int]:
    assignments = not_none(await asked(broker, member, strategy, **fields))
    return [assignment.message_queue.queue_id for assignment in assignments]


async def set_mode(broker: LocalBroker, mode: str, shared: int = 0, **fields: str) -> int:
    arguments = {"topic": "orders", "consumer_group": "billing", **fields}
    body = RequestMode(mode=mode, pop_share_queue_num=shared, **arguments)
    reply = await broker.ask(SetRequestMode(body=codec.dumps(body)))
    return int(reply.code)


@pytest.mark.usefixtures("group")
class TestGenuineStrategies:
    async def test_queues_are_assigned_in_blocks_or_round_robin(self, broker: LocalBroker) -> None:
        assert [await numbers(broker, f"c{n}") for n in (1, 2, 3)] == [[0, 1, 2], [3, 4, 5], [6, 7]]
        circle = [await numbers(broker, f"c{n}", "AVG_BY_CIRCLE") for n in (1, 2, 3)]
        assert circle == [[0, 3, 6], [1, 4, 7], [2, 5]]

    @pytest.mark.parametrize("strategy", ["CONSISTENT_HASH", "RENDEZVOUS", "BOUNDED_LOAD"])
    async def test_other_rules_give_one_owner(self, broker: LocalBroker, strategy: str) -> None:
        shares = [await numbers(broker, f"c{n}", strategy) for n in (1, 2, 3)]
        assert sorted(number for share in shares for number in share) == list(range(8))

    async def test_the_reply_equals_that_of_apaches_broker(self, broker: LocalBroker) -> None:
        assignments = await asked(broker, "c3")
        queue = MessageQueue("orders", broker.control.settings.config.broker_name, 6)
        assert assignments is not None
        assert assignments[0] == QueueAssignment(message_queue=queue, mode="PULL", attachments=None)

    async def test_every_client_gets_all_queues_to_broadcast(self, broker: LocalBroker) -> None:
        everything = list(range(8))
        model = MessageModel.BROADCASTING
        assert await numbers(broker, "c1", message_model=model) == everything
        assert await numbers(broker, "stranger", "", message_model=model) == everything

    async def test_a_client_outside_the_group_gets_no_queues(self, broker: LocalBroker) -> None:
        assert await asked(broker, "stranger") == []
        assert await asked(broker, "stranger", "STICKY") == []

    async def test_an_unknown_assignment_is_null(self, broker: LocalBroker) -> None:
        assert await asked(broker, "c1", topic="unknown") is None
        assert await asked(broker, "c1", consumer_group="unknown") is None
        assert await asked(broker, "c1", message_model=MessageModel.LITE_SELECTIVE) is None

    async def test_an_unreadable_topic_has_nothing_to_divide(self, broker: LocalBroker) -> None:
        broker.put_topic("orders", perm=2)
        assert await asked(broker, "c1") == []


@pytest.mark.usefixtures("group")
class TestBrokerDecided:
    @pytest.mark.parametrize("strategy", ["STICKY", "LAG_WEIGHTED"])
    async def test_all_members_get_one_assignment(self, broker: LocalBroker, strategy: str) -> None:
        shares = [await asked(broker, f"c{n}", strategy) or [] for n in (1, 2, 3)]
        assert sorted(len(share) for share in shares) == [2, 3, 3]
        assert sorted(x.message_queue.queue_id for share in shares for x in share) == list(range(8))
        assert {str(x.attachments) for share in shares for x in share} == {"{'snapshot': '1'}"}

    async def test_few_queues_move_when_a_member_joins(self, broker: LocalBroker) -> None:
        before = {f"c{n}": await numbers(broker, f"c{n}", "STICKY") for n in (1, 2, 3)}
        join(broker, FakePeer(), "c4")
        after = {f"c{n}": await numbers(broker, f"c{n}", "STICKY") for n in (1, 2, 3, 4)}
        assert sum(len(set(after[m]) - set(before[m])) for m in before) == 0
        assert len(after["c4"]) == 2
        assignments = await asked(broker, "c4", "STICKY") or []
        assert assignments[0].attachments == {"snapshot": "2"}


@pytest.mark.usefixtures("group")
class TestPopping:
    async def test_every_member_pops_all_queues_by_default(self, broker: LocalBroker) -> None:
        assert await set_mode(broker, "POP") == 0
        assignments = await asked(broker, "c1") or []
        assert [(x.message_queue.queue_id, x.mode) for x in assignments] == [(-1, "POP")]

    async def test_one_shared_queue_adds_the_next_members(self, broker: LocalBroker) -> None:
        await set_mode(broker, "POP", 1)
        assert await numbers(broker, "c3") == [6, 7, 0, 1, 2]

    async def test_retry_topics_are_pulled(self, broker: LocalBroker) -> None:
        assignments = await asked(broker, "c1", topic="%RETRY%billing") or []
        assert [x.mode for x in assignments] == ["PULL"]

    async def test_a_client_outside_the_group_pops_no_queues(self, broker: LocalBroker) -> None:
        await set_mode(broker, "POP")
        assert await asked(broker, "stranger") == []

    async def test_members_are_notified_of_a_changed_request_mode(
        self, broker: LocalBroker, group: dict[str, Any]
    ) -> None:
        group["c1"].told.clear()
        await set_mode(broker, "POP")
        assert group["c1"].told == [ConsumersChanged(consumer_group="billing")]


async def test_a_group_can_be_told_to_pop_before_its_first_consumer(broker: LocalBroker) -> None:
    broker.put_topic("orders")
    body = b'{"topic":"orders","consumerGroup":"unborn","mode":"POP","popShareQueueNum":0}'
    assert (await broker.ask(SetRequestMode(body=body))).code == 0
    assert broker.tables.groups.get("unborn") is not None
    assert broker.coordination.request_mode("orders", "unborn").mode == "POP"


@pytest.mark.parametrize("settings", [{"default_request_mode": "POP"}])
@pytest.mark.usefixtures("group")
async def test_a_broker_may_have_all_groups_pop(broker: LocalBroker) -> None:
    assignments = await asked(broker, "c1") or []
    assert [(x.message_queue.queue_id, x.mode) for x in assignments] == [(-1, "POP")]
    retries = await asked(broker, "c1", topic="%RETRY%billing") or []
    assert [x.mode for x in retries] == ["PULL"]


@pytest.mark.usefixtures("group")
class TestBadInput:
    @pytest.mark.parametrize(
        ("fields", "remark"),
        [
            ({"strategy": "MINE"}, "strategy 'MINE' is unknown here; there is AVG, "),
            ({"strategy": ""}, "strategy '' is unknown"),
            ({"topic": ""}, "topic is missing"),
            ({"consumer_group": ""}, "consumer_group is missing"),
            ({"member": ""}, "client_id is missing"),
        ],
    )
    async def test_a_question_that_cannot_be_answered_says_why(
        self, broker: LocalBroker, fields: dict[str, str], remark: str
    ) -> None:
        arguments = {"member": "c1", **fields}
        with refuses(ResponseCode.INVALID_PARAMETER, remark):
            await asked(broker, arguments.pop("member"), **arguments)

    @pytest.mark.parametrize("body", [b"", b"{", b"[]", b'{"topic":{}}'])
    async def test_a_broken_body_is_refused(self, broker: LocalBroker, body: bytes) -> None:
        with pytest.raises(FieldError):
            broker.ask(QueryAssignment(body=body))
        with pytest.raises(FieldError):
            await broker.ask(SetRequestMode(body=body))

    @pytest.mark.parametrize(
        ("fields", "code"),
        [
            ({"topic": "%RETRY%billing"}, ResponseCode.NO_PERMISSION),
            ({"consumer_group": "CID_RMQ_SYS_TRANS"}, ResponseCode.NO_PERMISSION),
            ({"topic": "unknown"}, ResponseCode.TOPIC_NOT_EXIST),
            ({"consumer_group": "not a name"}, ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST),
            ({"mode": "PUSH"}, ResponseCode.INVALID_PARAMETER),
        ],
    )
    async def test_a_mode_that_cannot_be_is_refused(
        self, broker: LocalBroker, fields: dict[str, str], code: ResponseCode
    ) -> None:
        arguments: dict[str, Any] = {"mode": "POP", **fields}
        with refuses(code):
            await set_mode(broker, arguments.pop("mode"), **arguments)
        assert [x.mode for x in await asked(broker, "c1") or []] == ["PULL"] * 3
