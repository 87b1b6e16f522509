import asyncio
from collections.abc import Awaitable
from typing import Any

import msgspec
import pytest
from tests.broker.conftest import (
    FakePeer,
    LocalBroker,
    failing,
    heartbeat_of,
    make_pull,
    not_none,
    refuses,
)

from roquet.broker.operations.topic_deletion import TopicDeletion
from roquet.model.errors import CallRefused, CallTimeout, StoreFull
from roquet.model.queue import MessageQueue
from roquet.model.subscription import Subscription
from roquet.rules.consumption.ordered_pop import hold
from roquet.wire.call import Reply
from roquet.wire.calls.admin.offset_reset import (
    CloneOffsets,
    GetClientStatus,
    GetGroupStatus,
    ResetClientOffset,
    ResetOffset,
)
from roquet.wire.calls.bodies import ClientStatus, ResetOffsetBody, ResetOffsetList
from roquet.wire.calls.offset import UpdateOffset
from roquet.wire.calls.pull import PullReply
from roquet.wire.codes import Language, ResponseCode
from roquet.wire.fastjson import codec

COUNT = 10
OUTSIDE = "not in consume queue range [0-10]"
ERROR, NO_GROUP = ResponseCode.SYSTEM_ERROR, ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST


@pytest.fixture(autouse=True)
def known(broker: LocalBroker) -> None:
    """Ten messages in queue 0, none in the others; a group that has read five."""
    for _ in range(COUNT):
        broker.send(default_topic_queue_nums=4)
    broker.tables.groups.find("billing", 0)
    broker.tables.offsets.commit("billing", "orders", 0, 5)


def asked(**fields: Any) -> ResetOffset:
    return ResetOffset(**{"group": "billing", "topic": "orders", "timestamp": -1, **fields})


def table(reply: Reply) -> dict[int, int]:
    offsets = codec.loads(reply.body, ResetOffsetBody).offset_table
    return {queue.queue_id: at for queue, at in offsets.items()}


def wanted(broker: LocalBroker, at: int = 5, **fields: Any) -> PullReply:
    reply = broker.ask(make_pull(at, sys_flag=4 | 1, commit_offset=at, **fields))
    assert isinstance(reply, PullReply)
    return reply


def join(
    broker: LocalBroker, peer: FakePeer, client_id: str = "c@1", topic: str = "orders"
) -> None:
    peer.version = 513
    data = heartbeat_of(client_id, Subscription(topic=topic, sub_string="*"))
    broker.tables.clients.beat(peer, data)


# -- by the broker -------------------------------------------------------------------------------


async def test_all_queues_are_reset_to_a_time(broker: LocalBroker) -> None:
    assert table(await broker.ask(asked(timestamp=0))) == {0: 0, 1: 0, 2: 0, 3: 0}
    assert broker.tables.offsets.get("billing", "orders", 0) == 0
    late = broker.control.clock.now_ms() + 60_000
    assert table(await broker.ask(asked(timestamp=late))) == {0: COUNT, 1: 0, 2: 0, 3: 0}


async def test_a_reset_without_a_time_is_to_the_end(broker: LocalBroker) -> None:
    assert table(await broker.ask(asked()))[0] == COUNT


@pytest.mark.parametrize(("offset", "reached"), [(0, 0), (7, 7), (10, 10), (11, 10)])
async def test_one_queue_is_reset(broker: LocalBroker, offset: int, reached: int) -> None:
    assert table(await broker.ask(asked(queue_id=0, offset=offset))) == {0: reached}
    assert broker.tables.offsets.get("billing", "orders", 0) == reached


async def test_one_queue_is_reset_to_a_time(broker: LocalBroker) -> None:
    assert table(await broker.ask(asked(queue_id=0, timestamp=0))) == {0: 0}
    assert table(await broker.ask(asked(queue_id=0, offset=-1))) == {0: COUNT}


@pytest.mark.parametrize(
    ("fields", "code", "remark"),
    [
        ({"topic": "nothing"}, ResponseCode.TOPIC_NOT_EXIST, "Topic nothing does not exist"),
        ({"group": "nobody"}, NO_GROUP, "Group nobody does not exist"),
        ({"queue_id": 0, "offset": 12}, ERROR, f"Target offset 12 {OUTSIDE}"),
        ({"queue_id": 0, "offset": -2}, ERROR, f"Target offset -2 {OUTSIDE}"),
        ({"queue_id": 4}, ERROR, "No queues to reset."),
    ],
)
async def test_an_invalid_reset_is_refused(
    broker: LocalBroker, fields: dict[str, Any], code: ResponseCode, remark: str
) -> None:
    with refuses(code) as refused:
        await broker.ask(asked(**fields))
    assert (refused.value.remark or "").startswith(remark)
    assert broker.tables.offsets.get("billing", "orders", 0) == 5
    assert not broker.tables.offset_resets.pending


async def test_a_topic_without_queues_has_none_to_reset(broker: LocalBroker) -> None:
    config = not_none(broker.tables.topics.get("orders"))
    broker.tables.topics.put(msgspec.structs.replace(config, read_queue_nums=0), 0)
    with pytest.raises(CallRefused, match="No queues to reset"):
        await broker.ask(asked())


async def test_the_next_pull_gets_the_reset_once_and_commits_nothing(broker: LocalBroker) -> None:
    await broker.ask(asked(queue_id=0, offset=2))
    reply = wanted(broker)
    assert (reply.code, reply.remark) == (ResponseCode.PULL_OFFSET_MOVED, "OFFSET_RESET")
    assert (reply.next_begin_offset, reply.min_offset, reply.max_offset) == (2, 0, COUNT)
    assert broker.tables.offsets.get("billing", "orders", 0) == 2
    assert wanted(broker, 2).code == 0


async def test_a_reset_does_not_reach_another_group(broker: LocalBroker) -> None:
    await broker.ask(asked(queue_id=0, offset=2))
    assert wanted(broker, consumer_group="others").code == 0


async def test_old_commits_are_ignored_until_the_reset_is_delivered(broker: LocalBroker) -> None:
    await broker.ask(asked(queue_id=0, offset=2))
    update = UpdateOffset(consumer_group="billing", topic="orders", queue_id=0, commit_offset=9)
    reply = broker.ask(update)
    assert (reply.code, reply.remark) == (0, "Offset has been previously reset")
    assert broker.tables.offsets.get("billing", "orders", 0) == 2
    wanted(broker)
    assert broker.ask(update).remark is None
    assert broker.tables.offsets.get("billing", "orders", 0) == 9


async def test_a_reset_frees_ordered_pops(broker: LocalBroker) -> None:
    broker.tables.ordered_pops.put("billing", "orders", 0, hold(None, [5], 1, 60_000, None))
    await broker.ask(asked(queue_id=0, offset=2))
    assert broker.tables.ordered_pops.get("billing", "orders", 0) is None


async def test_a_reset_that_the_disk_refuses_changes_nothing(
    broker: LocalBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(broker.tables.offsets, "saved", failing(StoreFull("no room")))
        with pytest.raises(StoreFull):
            await broker.ask(asked(timestamp=0))
    progress = [broker.tables.offsets.get("billing", "orders", queue_id) for queue_id in range(4)]
    assert progress == [5, None, None, None]
    assert not broker.tables.offset_resets.pending
    assert wanted(broker).code == 0


async def test_a_topic_that_is_deleted_during_a_reset_has_no_progress(broker: LocalBroker) -> None:
    resetting = asyncio.create_task(broker.ask(asked(timestamp=0)))
    await asyncio.sleep(0)
    broker.make(TopicDeletion).delete(["orders"])
    with pytest.raises(CallRefused, match="Topic orders does not exist"):
        await resetting
    assert broker.tables.offsets.get("billing", "orders", 0) is None


# -- by the members ------------------------------------------------------------------------------


@pytest.fixture
def by_members(broker: LocalBroker) -> None:
    broker.configure(useServerSideResetOffset="false")


@pytest.mark.usefixtures("by_members")
class TestByMembers:
    async def test_every_member_is_told_and_no_offset_changes(self, broker: LocalBroker) -> None:
        other = FakePeer()
        join(broker, broker.peer)
        join(broker, other, "c@2")
        other.language = Language.CPP
        reply = await broker.ask(asked(timestamp=0, is_force=True))
        assert table(reply) == {0: 0, 1: 0, 2: 0, 3: 0}
        (notice,), (listed,) = broker.peer.told, other.told
        assert isinstance(notice, ResetClientOffset)
        assert (notice.group, notice.topic, notice.timestamp) == ("billing", "orders", 0)
        assert codec.loads(notice.body, ResetOffsetBody) == codec.loads(reply.body, ResetOffsetBody)
        rows = codec.loads(listed.body, ResetOffsetList).offset_table
        assert [(row.queue_id, row.offset) for row in rows] == [(0, 0), (1, 0), (2, 0), (3, 0)]
        assert broker.tables.offsets.get("billing", "orders", 0) == 5
        assert not broker.tables.offset_resets.pending

    async def test_a_reset_without_force_never_skips_messages(self, broker: LocalBroker) -> None:
        join(broker, broker.peer)
        assert table(await broker.ask(asked()))[0] == 5
        assert table(await broker.ask(asked(is_force=True)))[0] == COUNT

    @pytest.mark.parametrize(("offset", "reached"), [(0, 0), (3, 3), (7, 7), (11, 10)])
    async def test_one_queue_is_reset_to_an_offset_within_its_bounds(
        self, broker: LocalBroker, offset: int, reached: int
    ) -> None:
        join(broker, broker.peer)
        assert table(await broker.ask(asked(queue_id=0, offset=offset))) == {0: reached}
        (notice,) = broker.peer.told
        assert table(Reply(body=notice.body)) == {0: reached}

    async def test_one_queue_is_reset_to_a_time(self, broker: LocalBroker) -> None:
        join(broker, broker.peer)
        assert table(await broker.ask(asked(queue_id=0, timestamp=0))) == {0: 0}
        assert table(await broker.ask(asked(queue_id=0))) == {0: 5}
        assert table(await broker.ask(asked(queue_id=0, offset=-1, is_force=True))) == {0: COUNT}

    @pytest.mark.parametrize("fields", [{"queue_id": 4}, {"queue_id": 0, "offset": 12}])
    async def test_an_unknown_queue_or_offset_is_refused_without_notification(
        self, broker: LocalBroker, fields: dict[str, Any]
    ) -> None:
        join(broker, broker.peer)
        with pytest.raises(CallRefused):
            await broker.ask(asked(**fields))
        assert broker.peer.told == []

    @pytest.mark.parametrize(
        ("fields", "code", "remark"),
        [
            ({"topic": "nothing"}, ERROR, "[reset-offset] reset offset failed"),
            ({"group": "nobody"}, ERROR, "THe consumer group <nobody> not exist"),
            ({}, ResponseCode.CONSUMER_NOT_ONLINE, "Consumer not online, so can not reset offset"),
        ],
    )
    async def test_a_member_that_cannot_be_notified_is_named(
        self, broker: LocalBroker, fields: dict[str, Any], code: int, remark: str
    ) -> None:
        with refuses(code) as refused:
            await broker.ask(asked(**fields))
        assert (refused.value.remark or "").startswith(remark)

    async def test_a_client_too_old_to_understand_stops_it_all(self, broker: LocalBroker) -> None:
        old = FakePeer()
        join(broker, broker.peer)
        join(broker, old, "c@2")
        old.version = 20
        with pytest.raises(CallRefused, match="the client does not support this feature"):
            await broker.ask(asked())
        assert broker.peer.told == []


# -- how far members are -------------------------------------------------------------------------


def answering(peer: FakePeer, answer: Reply | Exception) -> None:
    async def reply_to(question: GetClientStatus, timeout_ms: int) -> Reply:
        assert (question.group, question.topic, timeout_ms) == ("billing", "orders", 5_000)
        if isinstance(answer, Exception):
            raise answer
        return answer

    peer.reply_to = reply_to


async def status(broker: LocalBroker, **fields: Any) -> dict[str, dict[MessageQueue, int]]:
    answer = broker.ask(GetGroupStatus(**{"group": "billing", "topic": "orders", **fields}))
    assert isinstance(answer, Awaitable)
    return codec.loads((await answer).body, ClientStatus).consumer_table or {}


async def test_members_say_how_far_they_are_if_they_answer(broker: LocalBroker) -> None:
    silent, odd, empty = FakePeer(), FakePeer(), FakePeer()
    for number, member in enumerate((broker.peer, silent, odd, empty), 1):
        join(broker, member, f"c@{number}")
    queue = MessageQueue("orders", broker.control.settings.config.broker_name, 0)
    body = codec.dumps(ClientStatus(message_queue_table={queue: 7}))
    answering(broker.peer, Reply(body=body))
    answering(silent, CallTimeout("no answer"))
    answering(odd, Reply(body=b"{"))
    answering(empty, Reply())
    assert await status(broker) == {"c@1": {queue: 7}, "c@4": {}}
    assert await status(broker, client_addr="c@1") == {"c@1": {queue: 7}}
    assert await status(broker, client_addr="c@9") == {}


async def test_a_group_without_members_is_named(broker: LocalBroker) -> None:
    with pytest.raises(CallRefused) as refused:
        await status(broker)
    assert refused.value.remark == "No Any Consumer online in the consumer group: [billing]"
    join(broker, broker.peer)
    broker.peer.version = 3
    with pytest.raises(CallRefused, match=r"not support this feature\. version=3"):
        await status(broker)


# -- where another group is ----------------------------------------------------------------------


async def clone(broker: LocalBroker, **fields: Any) -> None:
    arguments = {"src_group": "billing", "dest_group": "audit", **fields}
    await broker.ask(CloneOffsets(**arguments))


async def test_a_group_gets_the_progress_of_another(broker: LocalBroker) -> None:
    broker.tables.offsets.commit("billing", "gone", 0, 3)
    await clone(broker)
    assert broker.tables.offsets.get("audit", "orders", 0) == 5
    assert broker.tables.offsets.get("audit", "gone", 0) is None
    broker.tables.offsets.commit("billing", "orders", 0, 6)
    assert broker.tables.offsets.get("audit", "orders", 0) == 5
    await clone(broker, topic="orders")
    assert broker.tables.offsets.get("audit", "orders", 0) == 6


async def test_progress_without_members_is_cloned_for_offline_groups(broker: LocalBroker) -> None:
    join(broker, broker.peer, topic="others")
    await clone(broker)
    assert broker.tables.offsets.get("audit", "orders", 0) is None
    await clone(broker, offline=True)
    assert broker.tables.offsets.get("audit", "orders", 0) == 5
