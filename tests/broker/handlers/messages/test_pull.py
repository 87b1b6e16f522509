import asyncio
from typing import Any

import msgspec
import pytest
from tests.broker.conftest import FakePeer, LocalBroker, heartbeat_of, make_pull, refuses

from roquet.broker.operations.topic_deletion import TopicDeletion
from roquet.model.errors import CallRefused
from roquet.model.names import INTERNAL_TOPICS
from roquet.model.subscription import MessageModel, Subscription
from roquet.model.topic import SubscriptionGroup
from roquet.wire.calls.bodies import MultiQueueOffsets
from roquet.wire.calls.pull import LitePull, Pull, PullReply
from roquet.wire.codes import HELP, Language, ResponseCode
from roquet.wire.fastjson.codec import dumps
from roquet.wire.records.record import decode_many

COMMIT, SUSPEND, SUBSCRIPTION = 1, 2, 4


def ask(offset: int = 0, **fields: Any) -> Pull:
    return make_pull(offset, **{"suspend_timeout_millis": 5_000, **fields})


def bodies(reply: PullReply) -> list[bytes]:
    return [record.body for record in decode_many(reply.body)]


def stored(broker: LocalBroker, *tags: str) -> None:
    """Stores messages with these tags in queue 0 of orders."""
    for tag in tags:
        broker.send(tag.encode(), properties=f"TAGS\x01{tag}\x02")


async def test_messages_come_from_the_asked_offset_on(broker: LocalBroker) -> None:
    stored(broker, "a", "b", "c")
    reply = broker.ask(ask(1))
    assert (reply.code, reply.remark, bodies(reply)) == (0, "FOUND", [b"b", b"c"])
    assert (reply.next_begin_offset, reply.min_offset, reply.max_offset) == (3, 0, 3)
    assert reply.suggest_which_broker_id == 0


async def test_a_lite_pull_is_a_pull(broker: LocalBroker) -> None:
    stored(broker, "a")
    assert bodies(broker.ask(ask(kind=LitePull))) == [b"a"]


async def test_a_pull_returns_at_most_the_requested_count(broker: LocalBroker) -> None:
    stored(broker, "a", "b", "c")
    reply = broker.ask(ask(max_msg_nums=2))
    assert (bodies(reply), reply.next_begin_offset) == ([b"a", b"b"], 2)


async def test_one_message_always_fits(broker: LocalBroker) -> None:
    stored(broker, "a", "b")
    assert bodies(broker.ask(ask(max_msg_bytes=1))) == [b"a"]


async def test_only_wanted_tags_come(broker: LocalBroker) -> None:
    stored(broker, "a", "b", "a", "c")
    reply = broker.ask(ask(subscription="a || c"))
    assert (bodies(reply), reply.next_begin_offset) == ([b"a", b"a", b"c"], 4)


async def test_a_range_without_wanted_tags_is_passed_at_once(broker: LocalBroker) -> None:
    stored(broker, "a", "b")
    reply = broker.ask(ask(subscription="z"))
    assert reply.code == ResponseCode.PULL_RETRY_IMMEDIATELY
    assert (reply.body, reply.next_begin_offset) == (b"", 2)


@pytest.mark.parametrize(
    ("count", "asked", "code", "next_offset"),
    [
        (0, 0, ResponseCode.PULL_NOT_FOUND, 0),
        (0, 7, ResponseCode.PULL_OFFSET_MOVED, 0),
        (2, 2, ResponseCode.PULL_NOT_FOUND, 2),
        (2, 3, ResponseCode.PULL_OFFSET_MOVED, 0),
        (2, -1, ResponseCode.PULL_OFFSET_MOVED, 0),
        (2, 2**62, ResponseCode.PULL_OFFSET_MOVED, 0),
    ],
)
async def test_an_offset_outside_the_queue_is_answered_with_where_to_go_on(
    broker: LocalBroker, count: int, asked: int, code: int, next_offset: int
) -> None:
    broker.put_topic("orders")
    stored(broker, *"ab"[:count])
    reply = broker.ask(ask(asked))
    assert (reply.code, reply.next_begin_offset) == (code, next_offset)
    assert (reply.min_offset, reply.max_offset, reply.body) == (0, count, b"")


async def test_a_pull_commits_an_offset(broker: LocalBroker) -> None:
    stored(broker, "a")
    broker.ask(ask(sys_flag=SUBSCRIPTION | COMMIT, commit_offset=1))
    assert broker.tables.offsets.get("billing", "orders", 0) == 1
    broker.ask(ask(sys_flag=SUBSCRIPTION | COMMIT, commit_offset=-1))
    broker.ask(ask(sys_flag=SUBSCRIPTION, commit_offset=9))
    assert broker.tables.offsets.get("billing", "orders", 0) == 1, "C++ says -1 when it has none"


class TestHeldPulls:
    @staticmethod
    def hold(
        broker: LocalBroker, peer: FakePeer, offset: int, **fields: Any
    ) -> asyncio.Task[PullReply]:
        answer = broker.ask(ask(offset, sys_flag=SUBSCRIPTION | SUSPEND, **fields), peer)
        return asyncio.create_task(answer)

    async def test_the_next_message_ends_the_wait(self, broker: LocalBroker) -> None:
        stored(broker, "a")
        held = self.hold(broker, broker.peer, 1)
        await asyncio.sleep(0.01)
        stored(broker, "b")
        assert bodies(await held) == [b"b"]

    async def test_a_message_between_read_and_wait_is_not_missed(self, broker: LocalBroker) -> None:
        stored(broker, "a")
        held = self.hold(broker, broker.peer, 1)
        stored(broker, "b")  # before the task has taken its first step
        assert bodies(await held) == [b"b"]

    async def test_other_tags_do_not_end_the_wait(self, broker: LocalBroker) -> None:
        stored(broker, "a")
        held = self.hold(broker, broker.peer, 1, subscription="wanted")
        await asyncio.sleep(0.01)
        stored(broker, "b", "c")
        await asyncio.sleep(0.01)
        assert not held.done()
        stored(broker, "wanted")
        reply = await held
        assert (bodies(reply), reply.next_begin_offset) == ([b"wanted"], 4)

    async def test_a_long_poll_ends_empty_with_its_timeout(self, broker: LocalBroker) -> None:
        stored(broker, "a")
        reply = await self.hold(broker, broker.peer, 1, suspend_timeout_millis=20)
        assert (reply.code, reply.next_begin_offset) == (ResponseCode.PULL_NOT_FOUND, 1)

    async def test_a_waiting_pull_returns_how_far_it_looked(self, broker: LocalBroker) -> None:
        stored(broker, "a")
        held = self.hold(broker, broker.peer, 1, suspend_timeout_millis=50, subscription="z")
        await asyncio.sleep(0.01)
        stored(broker, "b")
        reply = await held
        assert (reply.code, reply.next_begin_offset) == (ResponseCode.PULL_RETRY_IMMEDIATELY, 2)

    async def test_a_commit_is_noted_before_the_wait(self, broker: LocalBroker) -> None:
        stored(broker, "a")
        flags = SUBSCRIPTION | SUSPEND | COMMIT
        answer = broker.ask(ask(1, sys_flag=flags, commit_offset=1))
        assert broker.tables.offsets.get("billing", "orders", 0) == 1
        broker.tables.offsets.commit("billing", "orders", 0, 5)
        stored(broker, "b")
        await answer
        assert broker.tables.offsets.get("billing", "orders", 0) == 5, "and not once more behind it"

    async def test_a_stop_answers_waiting_pulls(self, broker: LocalBroker) -> None:
        stored(broker, "a")
        held = self.hold(broker, broker.peer, 1)
        await asyncio.sleep(0.01)
        broker.log.arrivals.close()
        assert (await held).code == ResponseCode.PULL_NOT_FOUND

    async def test_a_pull_without_flag_or_timeout_does_not_wait(self, broker: LocalBroker) -> None:
        stored(broker, "a")
        assert broker.ask(ask(1)).code == ResponseCode.PULL_NOT_FOUND
        flags = SUBSCRIPTION | SUSPEND
        reply = broker.ask(ask(1, sys_flag=flags, suspend_timeout_millis=0))
        assert reply.code == ResponseCode.PULL_NOT_FOUND

    async def test_a_correction_is_not_held_back(self, broker: LocalBroker) -> None:
        stored(broker, "a")
        reply = broker.ask(ask(9, sys_flag=SUBSCRIPTION | SUSPEND))
        assert reply.code == ResponseCode.PULL_OFFSET_MOVED


@pytest.mark.parametrize("settings", [{"long_polling": False}])
async def test_a_pull_is_held_for_a_moment_only(broker: LocalBroker) -> None:
    broker.configure(shortPollingTimeMills="10")
    stored(broker, "a")
    async with asyncio.timeout(2):
        answer = broker.ask(ask(1, sys_flag=SUBSCRIPTION | SUSPEND))
        assert (await answer).code == ResponseCode.PULL_NOT_FOUND


@pytest.mark.parametrize(
    ("fields", "code"),
    [
        ({"consumer_group": "no good name"}, ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST),
        ({"consumer_group": ""}, ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST),
        ({"topic": "unknown"}, ResponseCode.TOPIC_NOT_EXIST),
        ({"queue_id": 4}, ResponseCode.INVALID_PARAMETER),
        ({"queue_id": -1}, ResponseCode.INVALID_PARAMETER),
        ({"subscription": "||"}, ResponseCode.SUBSCRIPTION_PARSE_FAILED),
        ({"expression_type": "SQL92", "subscription": "a >"},
         ResponseCode.SUBSCRIPTION_PARSE_FAILED),
        ({"expression_type": "SQL99", "subscription": "a > 1"},
         ResponseCode.SUBSCRIPTION_PARSE_FAILED),
        ({"sys_flag": 0}, ResponseCode.SUBSCRIPTION_NOT_EXIST),
    ],
)  # fmt: skip
async def test_a_pull_with_invalid_fields_is_refused(
    broker: LocalBroker, fields: dict[str, Any], code: int
) -> None:
    stored(broker, "a")
    with refuses(code):
        broker.ask(ask(**fields))


def put(broker: LocalBroker, *values: int) -> None:
    """Stores messages with these values of `a` in queue 0 of orders."""
    for value in values:
        broker.send(str(value).encode(), properties=f"a\x01{value}\x02")


class TestBySql:
    """A pull with an expression on properties."""

    @pytest.fixture
    def settings(self) -> dict[str, Any]:
        return {"queue_file_entries": 300}

    @staticmethod
    def ask(expression: str = "a > 5", **fields: Any) -> Pull:
        return ask(**{"expression_type": "SQL92", "subscription": expression, **fields})

    async def hold(self, broker: LocalBroker, **fields: Any) -> asyncio.Future[Any]:
        """A pull that waits behind a message that does not match."""
        put(broker, 1)
        call = self.ask(offset=1, sys_flag=SUBSCRIPTION | SUSPEND, **fields)
        waiting: asyncio.Future[Any] = asyncio.ensure_future(broker.ask(call))
        await asyncio.sleep(0.01)
        return waiting

    async def test_only_what_matches_comes(self, broker: LocalBroker) -> None:
        put(broker, 3, 7, 5, 9, 1)
        reply = await broker.ask(self.ask())
        assert (reply.code, reply.remark, bodies(reply)) == (0, "FOUND", [b"7", b"9"])
        assert (reply.next_begin_offset, reply.min_offset, reply.max_offset) == (5, 0, 5)
        tally = broker.control.statistics.gets["orders", "billing"]
        assert (tally.count, tally.pulled) == (2, {0: 5})

    async def test_no_matching_message_is_skipped(self, broker: LocalBroker) -> None:
        put(broker, 1, 2, 3)
        reply = await broker.ask(self.ask())
        assert reply.code == ResponseCode.PULL_RETRY_IMMEDIATELY
        assert (reply.body, reply.next_begin_offset) == (b"", 3)

    async def test_limits_hold(self, broker: LocalBroker) -> None:
        put(broker, *range(20))
        reply = await broker.ask(self.ask(max_msg_nums=2))
        assert (bodies(reply), reply.next_begin_offset) == ([b"6", b"7"], 8)
        reply = await broker.ask(self.ask(max_msg_bytes=1))
        assert (bodies(reply), reply.next_begin_offset) == ([b"6"], 7)

    async def test_an_offset_outside_the_queue_is_corrected(self, broker: LocalBroker) -> None:
        put(broker, 1)
        reply = await broker.ask(self.ask(offset=9))
        assert (reply.code, reply.next_begin_offset) == (ResponseCode.PULL_OFFSET_MOVED, 0)

    async def test_progress_is_noted_on_the_way(self, broker: LocalBroker) -> None:
        put(broker, 7)
        await broker.ask(self.ask(sys_flag=SUBSCRIPTION | COMMIT, commit_offset=1))
        assert broker.tables.offsets.get("billing", "orders", 0) == 1

    async def test_a_pull_waits_for_a_message_that_matches(self, broker: LocalBroker) -> None:
        waiting = await self.hold(broker)
        for value in (2, 3):
            put(broker, value)
            await asyncio.sleep(0.01)
        assert not waiting.done()
        put(broker, 4, 8, 9)
        reply = await asyncio.wait_for(waiting, 2)
        assert (bodies(reply), reply.next_begin_offset) == ([b"8", b"9"], 6)

    async def test_a_long_poll_tells_how_far_it_scanned(self, broker: LocalBroker) -> None:
        reply = await (await self.hold(broker, suspend_timeout_millis=60))
        assert (reply.code, reply.next_begin_offset) == (ResponseCode.PULL_NOT_FOUND, 1)
        waiting = await self.hold(broker, suspend_timeout_millis=60)
        reply = await asyncio.wait_for(waiting, 2)
        assert (reply.code, reply.next_begin_offset) == (ResponseCode.PULL_RETRY_IMMEDIATELY, 2)

    async def test_a_pull_that_never_reaches_the_end_of_its_queue_is_answered_in_time(
        self, broker: LocalBroker, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr("roquet.broker.filtering.filter_scan.SCAN_MAX", 2)
        waiting = await self.hold(broker, suspend_timeout_millis=60)
        began_ms = broker.control.clock.monotonic_ms()
        while not waiting.done() and broker.control.clock.monotonic_ms() - began_ms < 1_000:
            put(broker, 2, 3, 4)
            await asyncio.sleep(0)
        assert waiting.done()
        assert waiting.result().code == ResponseCode.PULL_RETRY_IMMEDIATELY

    async def test_changes_during_a_waiting_pull_take_effect(self, broker: LocalBroker) -> None:
        waiting = await self.hold(broker)
        broker.put_topic("orders", perm=2)
        broker.log.arrivals.arrived("orders", 0, 1, [0])
        reply: Any = await asyncio.wait_for(waiting, 2)
        assert (reply.code, reply.forbidden_type) == (ResponseCode.NO_PERMISSION, 3)

    async def test_an_end_of_the_broker_ends_the_wait(self, broker: LocalBroker) -> None:
        waiting = await self.hold(broker)
        broker.log.arrivals.close()
        reply: Any = await asyncio.wait_for(waiting, 2)
        assert reply.code == ResponseCode.PULL_NOT_FOUND


@pytest.mark.parametrize("settings", [{"property_filter": False}])
async def test_sql_is_refused_in_apaches_words(broker: LocalBroker) -> None:
    stored(broker, "a")
    remark = "The broker does not support consumer to filter message by SQL92"
    with refuses(ResponseCode.SYSTEM_ERROR, f": {remark}$"):
        broker.ask(ask(expression_type="SQL92", subscription="a > 1"))


@pytest.mark.parametrize("kind", [None, "", "TAG"])
async def test_tags_need_not_be_named_as_such(broker: LocalBroker, kind: str | None) -> None:
    stored(broker, "a")
    assert bodies(broker.ask(ask(expression_type=kind, subscription="a"))) == [b"a"]


async def test_a_forbidden_group_or_topic_is_named_by_its_kind(broker: LocalBroker) -> None:
    stored(broker, "a")
    broker.tables.groups.put(SubscriptionGroup(group_name="billing", consume_enable=False), 0)
    reply = broker.ask(ask())
    assert (reply.code, reply.forbidden_type) == (ResponseCode.NO_PERMISSION, 2)
    broker.put_topic("orders", perm=2)
    reply = broker.ask(ask(consumer_group="other"))
    assert (reply.code, reply.forbidden_type) == (ResponseCode.NO_PERMISSION, 3)


class TestByHeartbeat:
    """Without its own expression a pull means what the group's members said."""

    @staticmethod
    def listen(broker: LocalBroker, expression: str, **fields: Any) -> None:
        wants = Subscription(topic="orders", sub_string=expression, sub_version=5, **fields)
        data = heartbeat_of("c", wants, message_model=MessageModel.BROADCASTING)
        broker.tables.clients.beat(broker.peer, data)

    async def test_the_groups_expression_counts(self, broker: LocalBroker) -> None:
        stored(broker, "a", "b")
        self.listen(broker, "b")
        assert bodies(broker.ask(ask(sys_flag=0, sub_version=5))) == [b"b"]

    @pytest.mark.parametrize("sql", ["", "TAGS is not null"])
    async def test_a_busy_member_owns_its_queue(self, broker: LocalBroker, sql: str) -> None:
        stored(broker, "a", "b")
        kind: dict[str, Any] = {"expression_type": "SQL92"} if sql else {}
        self.listen(broker, sql or "*", **kind)
        owners = broker.coordination.handover.owners
        assert owners("billing", "orders", 0) == []
        for flags in (0, SUSPEND):
            reply = broker.ask(ask(sys_flag=flags, max_msg_nums=1))
            assert bodies(await reply if sql else reply) == [b"a"]
        assert owners("billing", "orders", 0) == ["c"]
        broker.ask(ask(), FakePeer())
        assert owners("billing", "orders", 0) == ["c"], "a stranger's pull does not count"

    async def test_codes_of_a_heartbeat_are_not_believed(self, broker: LocalBroker) -> None:
        stored(broker, "tagA")
        self.listen(broker, "tagA", code_set=[0])  # as the C++ client sends it
        assert bodies(broker.ask(ask(sys_flag=0))) == [b"tagA"]

    async def test_a_topic_without_subscription_is_refused(self, broker: LocalBroker) -> None:
        stored(broker, "a")
        broker.put_topic("other")
        self.listen(broker, "*")
        with refuses(ResponseCode.SUBSCRIPTION_NOT_EXIST):
            broker.ask(ask(topic="other", sys_flag=0))

    async def test_newer_tags_than_the_heartbeats_get_everything(self, broker: LocalBroker) -> None:
        stored(broker, "a", "b")
        self.listen(broker, "b")
        for expression_type in ("TAG", "", None):
            newer = ask(sub_version=6, sys_flag=0, expression_type=expression_type)
            assert bodies(broker.ask(newer)) == [b"a", b"b"]

    @pytest.mark.parametrize(
        ("before", "now"),
        [
            ({"expression_type": "SQL92"}, {}),
            ({"class_filter_mode": True}, {}),
            ({}, {"expression_type": "SQL92"}),
            ({}, {"sys_flag": 8}),
        ],
    )
    async def test_a_newer_version_that_the_client_cannot_filter_itself_is_refused(
        self, broker: LocalBroker, before: dict[str, Any], now: dict[str, Any]
    ) -> None:
        stored(broker, "a")
        self.listen(broker, "a is null", **before)
        with refuses(ResponseCode.SUBSCRIPTION_NOT_LATEST):
            broker.ask(ask(**{"sub_version": 6, "sys_flag": 0, **now}))

    async def test_sql_may_come_with_a_heartbeat(self, broker: LocalBroker) -> None:
        stored(broker, "a", "b")
        self.listen(broker, "TAGS = 'b'", expression_type="SQL92")
        assert bodies(await broker.ask(ask(sys_flag=0))) == [b"b"]
        self.listen(broker, "TAGS = ", expression_type="SQL92")
        with refuses(ResponseCode.FILTER_DATA_NOT_EXIST):
            broker.ask(ask(sys_flag=0))

    async def test_a_group_that_may_not_broadcast_does_not(self, broker: LocalBroker) -> None:
        stored(broker, "a")
        group = SubscriptionGroup(group_name="billing", consume_broadcast_enable=False)
        broker.tables.groups.put(group, 0)
        self.listen(broker, "*")
        reply = broker.ask(ask())
        assert (reply.code, reply.forbidden_type) == (ResponseCode.NO_PERMISSION, 4)
        assert broker.ask(ask(consumer_group="other")).code == 0


@pytest.mark.parametrize("settings", [{"permission": 2}])
async def test_a_broker_without_read_permission_refuses_pulls(broker: LocalBroker) -> None:
    stored(broker, "a")
    reply = broker.ask(ask())
    assert (reply.code, reply.forbidden_type) == (ResponseCode.NO_PERMISSION, 1)


async def test_clients_in_other_languages_get_as_many_as_from_apache(broker: LocalBroker) -> None:
    stored(broker, *("red" for _ in range(50)))
    reply = broker.ask(ask(max_msg_nums=50))
    assert (len(bodies(reply)), reply.next_begin_offset) == (32, 32)
    broker.peer.language = Language.PYTHON
    assert len(bodies(broker.ask(ask(max_msg_nums=50)))) == 50


async def test_transfer_limits_of_settings_hold_for_other_languages(broker: LocalBroker) -> None:
    def pulled_count(count: int = 50, size: int | None = None) -> int:
        reply = broker.ask(ask(max_msg_nums=count, max_msg_bytes=size))
        return len(bodies(reply))

    stored(broker, *("red" for _ in range(50)))
    size = broker.log.store.end_position // 50
    broker.configure(maxTransferCountOnMessageInMemory=40, maxTransferBytesOnMessageInMemory="4MiB")
    assert pulled_count() == 40
    broker.configure(maxTransferBytesOnMessageInMemory=10 * size)
    assert pulled_count() == pulled_count(size=20 * size) == 10
    assert pulled_count(size=5 * size) == 5
    broker.configure(maxTransferBytesOnMessageInMemory=1)
    assert pulled_count() == 1
    msgspec.structs.force_setattr(broker.log, "memory", 25 * size)  # ten messages are 40 % of it
    assert pulled_count() == 8, "the oldest ones are on the disk"
    broker.configure(maxTransferCountOnMessageInDisk=9, maxTransferBytesOnMessageInDisk=3 * size)
    assert pulled_count() == 3
    broker.configure(maxTransferBytesOnMessageInDisk="1MiB")
    assert pulled_count() == 9
    broker.configure(accessMessageInMemoryMaxRatio=100, maxTransferBytesOnMessageInMemory="1MiB")
    reply = broker.ask(ask(30, max_msg_nums=50))
    assert len(bodies(reply)) == 20, "the newest are in memory"
    broker.peer.language = Language.PYTHON
    assert pulled_count() == 50


@pytest.mark.parametrize("expression", [" ", "|| ||"])
async def test_blanks_name_no_tag_and_find_nothing(broker: LocalBroker, expression: str) -> None:
    stored(broker, "red", "blue")
    reply = broker.ask(ask(subscription=expression))
    assert (reply.code, reply.next_begin_offset) == (ResponseCode.PULL_RETRY_IMMEDIATELY, 2)


@pytest.mark.parametrize("topic", sorted(INTERNAL_TOPICS))
@pytest.mark.parametrize("kind", [Pull, LitePull])
async def test_internal_topics_are_pulled_only_if_the_settings_allow_it(
    broker: LocalBroker, topic: str, kind: type[Pull]
) -> None:
    call = ask(kind=kind, topic=topic, suspend_timeout_millis=0)
    reply = broker.ask(call)
    assert (reply.code, reply.forbidden_type) == (ResponseCode.NO_PERMISSION, 3)
    assert "read_internal_topics=true" in reply.remark
    broker.configure(read_internal_topics="true")
    assert broker.ask(call).code == ResponseCode.PULL_NOT_FOUND


class TestTogether:
    @pytest.fixture
    def both(self, broker: LocalBroker) -> None:
        """Messages that take turns in two queues."""
        for body in (b"a", b"b", b"c", b"d"):
            broker.send(body, queue_id=body[0] % 2)

    async def test_other_queues_messages_come_too(self, broker: LocalBroker, both: None) -> None:
        reply = broker.ask(ask(queue_id=1, body=dumps(MultiQueueOffsets(offsets={0: 0}))))
        assert (bodies(reply), reply.next_begin_offset) == ([b"a", b"b", b"c", b"d"], 2)

    @pytest.mark.parametrize(
        "body", [b"{}", b"nonsense", b'{"offsets":{}}', b'{"offsets":{"99":0}}']
    )
    async def test_a_malformed_multi_queue_body_is_a_pull_of_one_queue(
        self, broker: LocalBroker, both: None, body: bytes
    ) -> None:
        assert bodies(broker.ask(ask(queue_id=1, body=body))) == [b"a", b"c"]

    async def test_a_filter_is_for_one_queue(self, broker: LocalBroker, both: None) -> None:
        call = ask(queue_id=1, subscription="x", body=dumps(MultiQueueOffsets(offsets={0: 0})))
        assert bodies(broker.ask(call)) == []


async def test_a_pull_that_means_a_deleted_topic_is_refused(broker: LocalBroker) -> None:
    stored(broker, "a", "b")
    before = broker.tables.topics.ids["orders"]
    assert bodies(broker.ask(ask(1, topic_id=before))) == [b"b"]
    broker.make(TopicDeletion).delete(["orders"])
    stored(broker, "c", "d", "e")
    with pytest.raises(CallRefused, match="deleted and made anew"):
        broker.ask(ask(1, topic_id=before))


async def test_a_waiting_pull_is_refused_when_its_topic_is_recreated(broker: LocalBroker) -> None:
    stored(broker, "a")
    call = ask(1, sys_flag=SUSPEND | SUBSCRIPTION, topic_id=broker.tables.topics.ids["orders"])
    waiting = asyncio.ensure_future(broker.ask(call))
    await asyncio.sleep(0)
    broker.make(TopicDeletion).delete(["orders"])
    stored(broker, "b", "c")
    with pytest.raises(CallRefused, match="deleted and made anew"):
        await waiting


async def test_an_apache_reader_of_a_new_topic_is_sent_to_its_start(broker: LocalBroker) -> None:
    stored(broker, "a", "b")
    broker.tables.former_readers.add("orders", [broker.peer], ["billing"])
    reply = broker.ask(ask(1, sys_flag=COMMIT | SUBSCRIPTION, commit_offset=1))
    assert (reply.code, reply.next_begin_offset) == (ResponseCode.PULL_OFFSET_MOVED, 0)
    assert broker.tables.offsets.get("billing", "orders", 0) is None, "the offset of the one before"
    assert bodies(broker.ask(ask(0))) == [b"a", b"b"]


async def test_a_reader_that_names_the_topics_id_is_believed(broker: LocalBroker) -> None:
    stored(broker, "a", "b")
    broker.tables.former_readers.add("orders", [broker.peer], ["billing"])
    reply = broker.ask(ask(1, topic_id=broker.tables.topics.ids.get("orders")))
    assert (reply.code, reply.next_begin_offset) == (ResponseCode.SUCCESS, 2)


async def test_a_reader_beyond_the_end_goes_on_at_its_groups_progress(broker: LocalBroker) -> None:
    stored(broker, "a", "b")
    broker.ask(ask(0, sys_flag=COMMIT | SUBSCRIPTION, commit_offset=1))
    reply = broker.ask(ask(9, sys_flag=COMMIT | SUBSCRIPTION, commit_offset=9))
    assert (reply.code, reply.next_begin_offset) == (ResponseCode.PULL_OFFSET_MOVED, 1)
    assert broker.tables.offsets.get("billing", "orders", 0) == 1, "nobody has read the ninth"


@pytest.mark.parametrize(
    ("fields", "says"),
    [
        ({"topic": "nope"}, "topic[nope] not exist, apply first please! "),
        ({"consumer_group": "no good"}, "subscription group [no good] does not exist, "),
        ({"sys_flag": 0}, "the consumer's group info not exist"),
    ],
)
async def test_refusals_end_with_apaches_hint(
    broker: LocalBroker, fields: dict[str, Any], says: str
) -> None:
    """Genuine clients add one of their own where it lacks."""
    stored(broker, "a")
    with pytest.raises(CallRefused) as refused:
        broker.ask(ask(**fields))
    assert refused.value.remark == f"{says}{HELP}"
