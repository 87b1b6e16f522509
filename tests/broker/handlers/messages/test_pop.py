import asyncio
from typing import Any

import msgspec
import pytest
from tests.broker.conftest import LocalBroker, make_pop, refuses

from roquet.model.names import INTERNAL_TOPICS
from roquet.model.topic import SubscriptionGroup
from roquet.store.store import Draft
from roquet.wire.calls.pop import Notification, Peek, PollingInfo, Pop, PopReply
from roquet.wire.codes import ResponseCode
from roquet.wire.command import Command
from roquet.wire.fields import decode_call
from roquet.wire.records.record import decode_many


def bodies(reply: PopReply) -> list[bytes]:
    return [record.body for record in decode_many(reply.body)]


def stored(broker: LocalBroker, *tags: str) -> None:
    """Stores messages with these tags in queues 0, 1, 0 … of orders."""
    for n, tag in enumerate(tags):
        broker.send(tag.encode(), properties=f"TAGS\x01{tag}\x02", queue_id=n % 2)


def watch(broker: LocalBroker, **fields: Any) -> Any:
    """The answer to a question, asked now, whether there is something to pop."""
    place = {"consumer_group": "billing", "topic": "orders", "queue_id": -1, "poll_time": 0}
    now_ms = broker.control.clock.now_ms()
    return broker.ask(Notification(**{**place, "born_time": now_ms, **fields}))


async def test_a_pop_takes_from_all_queues_and_says_where_from(broker: LocalBroker) -> None:
    stored(broker, "a", "b", "c")
    reply = broker.ask(make_pop())
    assert (reply.code, sorted(bodies(reply))) == (0, [b"a", b"b", b"c"])
    assert set(reply.start_offset_info.split(";")) == {"0 0 0", "0 1 0"}
    assert set(reply.msg_offset_info.split(";")) == {"0 0 0,1", "0 1 0"}
    assert (reply.invisible_time, reply.rest_num) == (60_000, 0)
    assert abs(broker.control.clock.now_ms() - reply.pop_time) < 1_000


async def test_a_popped_message_is_given_to_no_other_member(broker: LocalBroker) -> None:
    stored(broker, "a", "b", "c", "d")
    first = broker.ask(make_pop(queue_id=0, max_msg_nums=1))
    second = broker.ask(make_pop(queue_id=0))
    assert (bodies(first), bodies(second), first.rest_num) == ([b"a"], [b"c"], 1)
    assert broker.ask(make_pop(queue_id=0)).code == ResponseCode.POLLING_TIMEOUT
    assert len(bodies(broker.ask(make_pop(consumer_group="audit")))) == 4


async def test_tags_choose_and_the_others_are_passed_over(broker: LocalBroker) -> None:
    stored(broker, "a", "x", "b", "x", "a")
    reply = broker.ask(make_pop(queue_id=0, exp="a", exp_type="TAG"))
    assert (bodies(reply), reply.msg_offset_info) == ([b"a", b"a"], "0 0 0,2")
    assert broker.tables.offsets.get("billing", "orders", 0) == 3
    broker.ask(make_pop(queue_id=1, exp="a"))
    assert broker.tables.offsets.get("billing", "orders", 1) == 2


async def test_a_pop_waits_for_a_message(broker: LocalBroker) -> None:
    stored(broker, "a", "b")
    broker.ask(make_pop())
    waiting = [asyncio.ensure_future(broker.ask(make_pop(poll_time=5_000)))]
    await asyncio.sleep(0)
    info = broker.ask(PollingInfo(consumer_group="billing", topic="orders", queue_id=-1))
    assert info.polling_num == 1
    stored(broker, "c")
    reply: Any = await asyncio.wait_for(waiting[0], 2)
    assert bodies(reply) == [b"c"]


async def test_a_message_that_comes_before_a_pop_waits_is_given_to_it(broker: LocalBroker) -> None:
    stored(broker, "a", "b")
    broker.ask(make_pop())
    waits: Any = broker.ask(make_pop(poll_time=5_000))  # found nothing, and is no task yet
    noted: Any = watch(broker, poll_time=5_000)
    stored(broker, "c")
    assert (await asyncio.wait_for(noted, 2)).has_msg
    assert bodies(await asyncio.wait_for(waits, 2)) == [b"c"]


async def test_a_pop_that_finds_nothing_ends_in_time(broker: LocalBroker) -> None:
    stored(broker, "a")
    broker.ask(make_pop())
    reply = await broker.ask(make_pop(poll_time=30))
    assert (reply.code, reply.body) == (ResponseCode.POLLING_TIMEOUT, b"")


async def test_a_peek_takes_nothing(broker: LocalBroker) -> None:
    stored(broker, "a")
    look = Peek(consumer_group="billing", topic="orders", queue_id=-1, max_msg_nums=1)
    assert bodies(broker.ask(look)) == [b"a"]
    assert bodies(broker.ask(look)) == [b"a"]
    assert bodies(broker.ask(make_pop())) == [b"a"]
    assert broker.ask(look).code == ResponseCode.PULL_NOT_FOUND


async def test_a_notification_says_when_there_is_something(broker: LocalBroker) -> None:
    stored(broker, "a")
    assert watch(broker).has_msg
    broker.ask(make_pop())
    assert not watch(broker).has_msg
    waiting = asyncio.ensure_future(watch(broker, poll_time=5_000))
    await asyncio.sleep(0)
    stored(broker, "b")
    assert (await asyncio.wait_for(waiting, 2)).has_msg


@pytest.mark.parametrize(
    ("fields", "code"),
    [
        ({"topic": "nowhere"}, ResponseCode.TOPIC_NOT_EXIST),
        ({"queue_id": 99}, ResponseCode.INVALID_PARAMETER),
        ({"queue_id": -2}, ResponseCode.INVALID_PARAMETER),
        ({"max_msg_nums": 33}, ResponseCode.INVALID_PARAMETER),
        ({"max_msg_nums": 0}, ResponseCode.INVALID_PARAMETER),
        ({"invisible_time": 0}, ResponseCode.INVALID_PARAMETER),
        ({"invisible_time": 2**63 - 1}, ResponseCode.INVALID_PARAMETER),
        ({"exp": "||"}, ResponseCode.SUBSCRIPTION_PARSE_FAILED),
        ({"exp_type": "SQL92", "exp": "a >"}, ResponseCode.SUBSCRIPTION_PARSE_FAILED),
        ({"exp_type": "SQL99", "exp": "a"}, ResponseCode.SUBSCRIPTION_PARSE_FAILED),
        ({"consumer_group": "bad group"}, ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST),
        ({"consumer_group": "shut"}, ResponseCode.NO_PERMISSION),
        ({"topic": "secret"}, ResponseCode.NO_PERMISSION),
    ],
)
async def test_bad_pops_are_refused(
    broker: LocalBroker, fields: dict[str, Any], code: ResponseCode
) -> None:
    stored(broker, "a")
    broker.tables.groups.put(SubscriptionGroup(group_name="shut", consume_enable=False), 1)
    broker.put_topic("secret", perm=2)
    with refuses(code):
        broker.ask(make_pop(**fields))


async def test_a_pop_that_comes_too_late_gets_nothing(broker: LocalBroker) -> None:
    stored(broker, "a")
    late = broker.control.clock.now_ms() - 2_000
    reply = broker.ask(make_pop(born_time=late, poll_time=1_000))
    assert (reply.code, reply.body) == (ResponseCode.POLLING_TIMEOUT, b"")


@pytest.mark.parametrize("born", ['"bornTime":"0",', ""], ids=["zero", "missing"])
async def test_a_pop_that_says_no_born_time_is_born_now(broker: LocalBroker, born: str) -> None:
    stored(broker, "a")
    fields = (
        '{"consumerGroup":"billing","topic":"orders","queueId":"-1","maxMsgNums":"32",'
        + born
        + '"invisibleTime":"60000","pollTime":"0","initMode":"0"}'
    )
    reply = broker.ask(decode_call(Command(Pop.code, fields=msgspec.Raw(fields.encode())), Pop))
    assert (reply.code, bodies(reply)) == (ResponseCode.SUCCESS, [b"a"])


@pytest.mark.parametrize("topic", sorted(INTERNAL_TOPICS))
async def test_internal_topics_are_popped_only_if_the_settings_allow_it(
    broker: LocalBroker, topic: str
) -> None:
    calls: list[Any] = [
        make_pop(topic=topic),
        Peek(consumer_group="g", topic=topic, queue_id=-1, max_msg_nums=1),
        Notification(consumer_group="g", topic=topic, queue_id=-1, poll_time=0),
    ]
    for call in calls:
        with refuses(ResponseCode.NO_PERMISSION, "read_internal_topics=true"):
            broker.ask(call)
    broker.configure(read_internal_topics="true")
    for call in calls:
        broker.ask(call)


async def test_a_waiting_pop_advances_past_unwanted_messages(
    broker: LocalBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("roquet.store.reading.reader.SCAN_MAX", 4)
    stored(broker, *"x" * 40, "a")
    call = make_pop(queue_id=0, exp="a", poll_time=60_000, max_msg_nums=1)
    reply: Any = await asyncio.wait_for(broker.ask(call), 2)
    assert bodies(reply) == [b"a"]


@pytest.mark.parametrize("queue_id", [0, -1])
async def test_messages_left_by_a_pop_wake_pops_that_wait_for_their_queue(
    broker: LocalBroker, queue_id: int
) -> None:
    stored(broker, "a", "b")
    broker.ask(make_pop())
    waits = [
        asyncio.ensure_future(broker.ask(make_pop(queue_id=n, poll_time=5_000))) for n in (1, 0)
    ]
    await asyncio.sleep(0)
    draft = Draft("orders", 0, b"more", b"")
    for _ in range(2):  # nobody is told
        broker.log.store.append(draft, 5)
    broker.ask(make_pop(queue_id=queue_id, max_msg_nums=1))
    reply: Any = await asyncio.wait_for(waits[1], 2)
    assert bodies(reply) == [b"more"]
    waits[0].cancel()


async def test_a_notification_passes_a_message_on_to_a_pop_that_waits_for_its_queue(
    broker: LocalBroker,
) -> None:
    stored(broker, "a", "b")
    broker.ask(make_pop())
    noted = asyncio.ensure_future(watch(broker, poll_time=5_000))
    waits = [
        asyncio.ensure_future(broker.ask(make_pop(queue_id=n, poll_time=5_000))) for n in (1, 0)
    ]
    await asyncio.sleep(0)
    stored(broker, "c")
    assert (await asyncio.wait_for(noted, 2)).has_msg
    reply: Any = await asyncio.wait_for(waits[1], 2)
    assert bodies(reply) == [b"c"]
    waits[0].cancel()


async def test_a_notification_comes_once_an_ordered_queue_is_free(broker: LocalBroker) -> None:
    stored(broker, "a")
    broker.ask(make_pop(order=True, attempt_id="a", invisible_time=50))
    waiting = watch(broker, queue_id=0, poll_time=5_000, order=True, attempt_id="b")
    assert (await asyncio.wait_for(waiting, 2)).has_msg


SQL: dict[str, Any] = {"exp_type": "SQL92", "exp": "TAGS IN ('a', 'b')"}


class TestBySql:
    """Pops with an expression on properties."""

    async def test_only_what_matches_is_taken(self, broker: LocalBroker) -> None:
        stored(broker, "a", "x", "b", "x", "a")
        reply = broker.ask(make_pop(**SQL))
        assert (sorted(bodies(reply)), reply.rest_num) == ([b"a", b"a", b"b"], 0)
        assert "0 0 0,1,2" in reply.msg_offset_info
        assert [broker.tables.offsets.get("billing", "orders", queue) for queue in (0, 1)] == [3, 2]

    async def test_the_offsets_are_those_of_what_matches(self, broker: LocalBroker) -> None:
        stored(broker, "x", "x", "a", "x", "x", "x", "b")
        reply = broker.ask(make_pop(queue_id=0, **SQL))
        assert (reply.start_offset_info, reply.msg_offset_info) == ("0 0 0", "0 0 1,3")

    async def test_without_an_expression_its_kind_is_ignored(self, broker: LocalBroker) -> None:
        stored(broker, "x")
        assert bodies(broker.ask(make_pop(exp_type="SQL92"))) == [b"x"]

    async def test_a_pop_waits_for_what_matches(self, broker: LocalBroker) -> None:
        stored(broker, "x")
        waits = broker.ask(make_pop(poll_time=5_000, **SQL))
        waiting: asyncio.Future[Any] = asyncio.ensure_future(waits)
        await asyncio.sleep(0.01)
        stored(broker, "x", "x")
        await asyncio.sleep(0.01)
        assert not waiting.done()
        stored(broker, "b")
        assert bodies(await asyncio.wait_for(waiting, 2)) == [b"b"]

    async def test_consecutive_pops_scan_a_long_queue(
        self, broker: LocalBroker, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr("roquet.broker.filtering.filter_scan.STEP_MAX", 16)
        stored(broker, *["x"] * 99, "a")
        answer = broker.ask(make_pop(**SQL))
        assert (answer.code, answer.rest_num) == (ResponseCode.POLLING_TIMEOUT, 84)
        assert bodies(await broker.ask(make_pop(poll_time=2_000, **SQL))) == [b"a"]

    async def test_the_queues_of_a_pop_share_the_work_of_one_step(
        self, broker: LocalBroker, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr("roquet.broker.filtering.filter_scan.STEP_WORK", 1)
        stored(broker, *["x"] * 40)
        assert len([n for n in range(4) if broker.log.store.bounds("orders", n)[1] > 1]) > 1
        answer = broker.ask(make_pop(**SQL))
        assert (answer.code, answer.rest_num) == (ResponseCode.POLLING_TIMEOUT, 39)

    async def test_a_notification_reports_matching_messages(self, broker: LocalBroker) -> None:
        stored(broker, "x", "x")
        assert not watch(broker, **SQL).has_msg
        assert watch(broker).has_msg
        waiting = asyncio.ensure_future(watch(broker, poll_time=5_000, **SQL))
        await asyncio.sleep(0.01)
        stored(broker, "x")
        await asyncio.sleep(0.01)
        assert not waiting.done()
        stored(broker, "a")
        assert (await asyncio.wait_for(waiting, 2)).has_msg

    async def test_a_notification_does_not_scan_a_long_queue(self, broker: LocalBroker) -> None:
        stored(broker, *["x"] * 200)
        assert watch(broker, queue_id=0, **SQL).has_msg, "there may be some: the pop will see"


def test_a_group_that_pops_has_a_retry_topic_by_which_apaches_tools_find_it(
    broker: LocalBroker,
) -> None:
    broker.put_topic("orders", 2)
    assert broker.tables.topics.get("%RETRY%billing") is None
    broker.ask(make_pop(poll_time=0))
    assert broker.tables.topics.get("%RETRY%billing") is not None
