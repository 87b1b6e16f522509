import asyncio
from collections.abc import Awaitable
from typing import Any

import msgspec
import pytest
from tests.broker.conftest import FakePeer, MakeSend, NewPeer

from roquet.broker.broker import Broker
from roquet.broker.handlers.admin.reset import ResetHandler
from roquet.broker.handlers.groups.offset import OffsetHandler
from roquet.broker.handlers.messages.pull import PullHandler
from roquet.broker.handlers.messages.send import SendHandler
from roquet.broker.operations.topic_deletion import TopicDeletion
from roquet.model.errors import CallRefused, CallTimeout, StoreFull
from roquet.model.queue import MessageQueue
from roquet.model.subscription import ConsumerData, HeartbeatData, Subscription
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
from roquet.wire.calls.pull import Pull, PullReply
from roquet.wire.codes import Language, ResponseCode
from roquet.wire.fastjson import codec

COUNT = 10


@pytest.fixture(autouse=True)
def known(broker: Broker, peer: FakePeer, message: MakeSend) -> None:
    """Ten messages in queue 0, none in the others; a group that has read five."""
    for _ in range(COUNT):
        broker.bind(SendHandler.send)(message(default_topic_queue_nums=4), peer)
    broker.tables.groups.find("billing", 0)
    broker.tables.offsets.commit("billing", "orders", 0, 5)


def asked(**fields: Any) -> ResetOffset:
    return ResetOffset(**{"group": "billing", "topic": "orders", "timestamp": -1, **fields})


def table(reply: Reply) -> dict[int, int]:
    offsets = codec.loads(reply.body, ResetOffsetBody).offset_table
    return {queue.queue_id: at for queue, at in offsets.items()}


def wanted(broker: Broker, peer: FakePeer, at: int = 5, **fields: Any) -> PullReply:
    arguments = {
        "consumer_group": "billing", "topic": "orders", "queue_id": 0, "queue_offset": at,
        "max_msg_nums": 32, "sys_flag": 4 | 1, "commit_offset": at, "suspend_timeout_millis": 0,
        "subscription": "*", "sub_version": 0, **fields,
    }  # fmt: skip
    reply = broker.bind(PullHandler.pull)(Pull(**arguments), peer)
    assert isinstance(reply, PullReply)
    return reply


def join(broker: Broker, peer: FakePeer, client_id: str = "c@1", topic: str = "orders") -> None:
    peer.version = 513
    listens = [Subscription(topic=topic, sub_string="*")]
    group = ConsumerData(group_name="billing", subscription_data_set=listens)
    broker.tables.clients.beat(peer, HeartbeatData(client_id=client_id, consumer_data_set=[group]))


# -- by the broker -------------------------------------------------------------------------------


async def test_all_queues_are_reset_to_a_time(broker: Broker, peer: FakePeer) -> None:
    assert table(await broker.bind(ResetHandler.reset)(asked(timestamp=0), peer)) == {
        0: 0,
        1: 0,
        2: 0,
        3: 0,
    }
    assert broker.tables.offsets.get("billing", "orders", 0) == 0
    late = broker.control.clock.now_ms() + 60_000
    assert table(await broker.bind(ResetHandler.reset)(asked(timestamp=late), peer)) == {
        0: COUNT,
        1: 0,
        2: 0,
        3: 0,
    }


async def test_a_reset_without_a_time_is_to_the_end(broker: Broker, peer: FakePeer) -> None:
    assert table(await broker.bind(ResetHandler.reset)(asked(), peer))[0] == COUNT


@pytest.mark.parametrize(("offset", "reached"), [(0, 0), (7, 7), (10, 10), (11, 10)])
async def test_one_queue_is_reset_to_an_offset(
    broker: Broker, peer: FakePeer, offset: int, reached: int
) -> None:
    reply = await broker.bind(ResetHandler.reset)(asked(queue_id=0, offset=offset), peer)
    assert table(reply) == {0: reached}
    assert broker.tables.offsets.get("billing", "orders", 0) == reached


async def test_one_queue_is_reset_to_a_time(broker: Broker, peer: FakePeer) -> None:
    assert table(await broker.bind(ResetHandler.reset)(asked(queue_id=0, timestamp=0), peer)) == {
        0: 0
    }
    assert table(await broker.bind(ResetHandler.reset)(asked(queue_id=0, offset=-1), peer)) == {
        0: COUNT
    }


@pytest.mark.parametrize(
    ("fields", "code", "remark"),
    [
        ({"topic": "nothing"}, ResponseCode.TOPIC_NOT_EXIST, "Topic nothing does not exist"),
        (
            {"group": "nobody"},
            ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST,
            "Group nobody does not exist",
        ),
        (
            {"queue_id": 0, "offset": 12},
            ResponseCode.SYSTEM_ERROR,
            "Target offset 12 not in consume queue range [0-10]",
        ),
        (
            {"queue_id": 0, "offset": -2},
            ResponseCode.SYSTEM_ERROR,
            "Target offset -2 not in consume queue range [0-10]",
        ),
        ({"queue_id": 4}, ResponseCode.SYSTEM_ERROR, "No queues to reset."),
    ],
)
async def test_an_invalid_reset_is_refused(
    broker: Broker, peer: FakePeer, fields: dict[str, Any], code: ResponseCode, remark: str
) -> None:
    with pytest.raises(CallRefused) as refused:
        await broker.bind(ResetHandler.reset)(asked(**fields), peer)
    assert refused.value.code == code
    assert (refused.value.remark or "").startswith(remark)
    assert broker.tables.offsets.get("billing", "orders", 0) == 5
    assert not broker.tables.offset_resets.pending


async def test_a_topic_without_queues_has_none_to_reset(broker: Broker, peer: FakePeer) -> None:
    config = broker.tables.topics.get("orders")
    assert config is not None
    broker.tables.topics.put(msgspec.structs.replace(config, read_queue_nums=0), 0)
    with pytest.raises(CallRefused, match="No queues to reset"):
        await broker.bind(ResetHandler.reset)(asked(), peer)


async def test_the_next_pull_gets_the_reset_offset_once_and_commits_nothing(
    broker: Broker, peer: FakePeer
) -> None:
    await broker.bind(ResetHandler.reset)(asked(queue_id=0, offset=2), peer)
    reply = wanted(broker, peer)
    assert (reply.code, reply.remark) == (ResponseCode.PULL_OFFSET_MOVED, "OFFSET_RESET")
    assert (reply.next_begin_offset, reply.min_offset, reply.max_offset) == (2, 0, COUNT)
    assert broker.tables.offsets.get("billing", "orders", 0) == 2
    assert wanted(broker, peer, 2).code == 0


async def test_a_reset_does_not_reach_another_group(broker: Broker, peer: FakePeer) -> None:
    await broker.bind(ResetHandler.reset)(asked(queue_id=0, offset=2), peer)
    assert wanted(broker, peer, consumer_group="others").code == 0


async def test_old_commits_are_ignored_until_the_reset_is_delivered(
    broker: Broker, peer: FakePeer
) -> None:
    await broker.bind(ResetHandler.reset)(asked(queue_id=0, offset=2), peer)
    update = UpdateOffset(consumer_group="billing", topic="orders", queue_id=0, commit_offset=9)
    reply = broker.bind(OffsetHandler.update)(update, peer)
    assert (reply.code, reply.remark) == (0, "Offset has been previously reset")
    assert broker.tables.offsets.get("billing", "orders", 0) == 2
    wanted(broker, peer)
    assert broker.bind(OffsetHandler.update)(update, peer).remark is None
    assert broker.tables.offsets.get("billing", "orders", 0) == 9


async def test_a_reset_frees_ordered_pops(broker: Broker, peer: FakePeer) -> None:
    held = hold(None, [5], 1, 60_000, None)
    broker.tables.ordered_pops.put("billing", "orders", 0, held)
    await broker.bind(ResetHandler.reset)(asked(queue_id=0, offset=2), peer)
    assert broker.tables.ordered_pops.get("billing", "orders", 0) is None


async def test_a_reset_that_the_disk_refuses_changes_nothing(
    broker: Broker, peer: FakePeer, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def no_room(_before: object) -> None:
        raise StoreFull("no room")

    with monkeypatch.context() as patch:
        patch.setattr(broker.tables.offsets, "saved", no_room)
        with pytest.raises(StoreFull):
            await broker.bind(ResetHandler.reset)(asked(timestamp=0), peer)
    assert [broker.tables.offsets.get("billing", "orders", n) for n in range(4)] == [
        5,
        None,
        None,
        None,
    ]
    assert not broker.tables.offset_resets.pending
    assert wanted(broker, peer).code == 0


async def test_a_topic_that_is_deleted_during_a_reset_has_no_progress(
    broker: Broker, peer: FakePeer
) -> None:
    resetting = asyncio.create_task(broker.bind(ResetHandler.reset)(asked(timestamp=0), peer))
    await asyncio.sleep(0)
    broker.make(TopicDeletion).delete(["orders"])
    with pytest.raises(CallRefused, match="Topic orders does not exist"):
        await resetting
    assert broker.tables.offsets.get("billing", "orders", 0) is None


# -- by the members ------------------------------------------------------------------------------


@pytest.fixture
def by_members(broker: Broker) -> None:
    broker.control.settings.change({"useServerSideResetOffset": "false"}, 0)


@pytest.mark.usefixtures("by_members")
class TestByMembers:
    async def test_every_member_is_notified_and_no_offset_changes(
        self, broker: Broker, peer: FakePeer, new_peer: NewPeer
    ) -> None:
        other = new_peer()
        join(broker, peer)
        join(broker, other, "c@2")
        other.language = Language.CPP
        reply = await broker.bind(ResetHandler.reset)(asked(timestamp=0, is_force=True), peer)
        assert table(reply) == {0: 0, 1: 0, 2: 0, 3: 0}
        (notice,), (listed,) = peer.told, other.told
        assert isinstance(notice, ResetClientOffset)
        assert (notice.group, notice.topic, notice.timestamp) == ("billing", "orders", 0)
        assert codec.loads(notice.body, ResetOffsetBody) == codec.loads(reply.body, ResetOffsetBody)
        rows = codec.loads(listed.body, ResetOffsetList).offset_table
        assert [(row.queue_id, row.offset) for row in rows] == [(0, 0), (1, 0), (2, 0), (3, 0)]
        assert broker.tables.offsets.get("billing", "orders", 0) == 5
        assert not broker.tables.offset_resets.pending

    async def test_a_reset_without_force_never_skips_messages(
        self, broker: Broker, peer: FakePeer
    ) -> None:
        join(broker, peer)
        assert table(await broker.bind(ResetHandler.reset)(asked(), peer))[0] == 5
        assert table(await broker.bind(ResetHandler.reset)(asked(is_force=True), peer))[0] == COUNT

    @pytest.mark.parametrize(("offset", "reached"), [(0, 0), (3, 3), (7, 7), (11, 10)])
    async def test_one_queue_is_reset_to_an_offset_within_its_bounds(
        self, broker: Broker, peer: FakePeer, offset: int, reached: int
    ) -> None:
        join(broker, peer)
        reply = await broker.bind(ResetHandler.reset)(asked(queue_id=0, offset=offset), peer)
        assert table(reply) == {0: reached}
        (notice,) = peer.told
        assert table(Reply(body=notice.body)) == {0: reached}

    async def test_one_queue_is_reset_to_a_time(self, broker: Broker, peer: FakePeer) -> None:
        join(broker, peer)
        reply = await broker.bind(ResetHandler.reset)(asked(queue_id=0, timestamp=0), peer)
        assert table(reply) == {0: 0}
        assert table(await broker.bind(ResetHandler.reset)(asked(queue_id=0), peer)) == {0: 5}
        reply = await broker.bind(ResetHandler.reset)(
            asked(queue_id=0, offset=-1, is_force=True), peer
        )
        assert table(reply) == {0: COUNT}

    @pytest.mark.parametrize("fields", [{"queue_id": 4}, {"queue_id": 0, "offset": 12}])
    async def test_an_unknown_queue_or_offset_is_refused_without_notification(
        self, broker: Broker, peer: FakePeer, fields: dict[str, Any]
    ) -> None:
        join(broker, peer)
        with pytest.raises(CallRefused):
            await broker.bind(ResetHandler.reset)(asked(**fields), peer)
        assert peer.told == []

    @pytest.mark.parametrize(
        ("fields", "code", "remark"),
        [
            ({"topic": "nothing"}, ResponseCode.SYSTEM_ERROR, "[reset-offset] reset offset failed"),
            (
                {"group": "nobody"},
                ResponseCode.SYSTEM_ERROR,
                "THe consumer group <nobody> not exist",
            ),
            ({}, ResponseCode.CONSUMER_NOT_ONLINE, "Consumer not online, so can not reset offset"),
        ],
    )
    async def test_a_member_that_cannot_be_notified_is_named(
        self, broker: Broker, peer: FakePeer, fields: dict[str, Any], code: int, remark: str
    ) -> None:
        with pytest.raises(CallRefused) as refused:
            await broker.bind(ResetHandler.reset)(asked(**fields), peer)
        assert refused.value.code == code
        assert (refused.value.remark or "").startswith(remark)

    async def test_a_client_that_would_not_understand_stops_it_all(
        self, broker: Broker, peer: FakePeer, new_peer: NewPeer
    ) -> None:
        old = new_peer()
        join(broker, peer)
        join(broker, old, "c@2")
        old.version = 20
        with pytest.raises(CallRefused, match="the client does not support this feature"):
            await broker.bind(ResetHandler.reset)(asked(), peer)
        assert peer.told == []


# -- how far members are -------------------------------------------------------------------------


def answering(peer: FakePeer, answer: Reply | Exception) -> None:
    async def reply_to(question: GetClientStatus, timeout_ms: int) -> Reply:
        assert (question.group, question.topic, timeout_ms) == ("billing", "orders", 5_000)
        if isinstance(answer, Exception):
            raise answer
        return answer

    peer.reply_to = reply_to


async def status(
    broker: Broker, peer: FakePeer, **fields: Any
) -> dict[str, dict[MessageQueue, int]]:
    call = GetGroupStatus(**{"group": "billing", "topic": "orders", **fields})
    answer = broker.bind(ResetHandler.status)(call, peer)
    assert isinstance(answer, Awaitable)
    return codec.loads((await answer).body, ClientStatus).consumer_table or {}


async def test_members_say_how_far_they_are_and_the_silent_are_left_out(
    broker: Broker, peer: FakePeer, new_peer: NewPeer
) -> None:
    silent, odd, empty = new_peer(), new_peer(), new_peer()
    for number, member in enumerate((peer, silent, odd, empty), 1):
        join(broker, member, f"c@{number}")
    queue = MessageQueue("orders", broker.control.settings.config.broker_name, 0)
    body = codec.dumps(ClientStatus(message_queue_table={queue: 7}))
    answering(peer, Reply(body=body))
    answering(silent, CallTimeout("no answer"))
    answering(odd, Reply(body=b"{"))
    answering(empty, Reply())
    assert await status(broker, peer) == {"c@1": {queue: 7}, "c@4": {}}
    assert await status(broker, peer, client_addr="c@1") == {"c@1": {queue: 7}}
    assert await status(broker, peer, client_addr="c@9") == {}


async def test_a_group_without_members_is_named(broker: Broker, peer: FakePeer) -> None:
    with pytest.raises(CallRefused) as refused:
        await status(broker, peer)
    assert refused.value.remark == "No Any Consumer online in the consumer group: [billing]"
    join(broker, peer)
    peer.version = 3
    with pytest.raises(CallRefused, match=r"not support this feature\. version=3"):
        await status(broker, peer)


# -- where another group is ----------------------------------------------------------------------


async def clone(broker: Broker, peer: FakePeer, **fields: Any) -> None:
    arguments = {"src_group": "billing", "dest_group": "audit", **fields}
    await broker.bind(ResetHandler.clone)(CloneOffsets(**arguments), peer)


async def test_a_group_gets_the_progress_of_another(broker: Broker, peer: FakePeer) -> None:
    broker.tables.offsets.commit("billing", "gone", 0, 3)
    await clone(broker, peer)
    assert broker.tables.offsets.get("audit", "orders", 0) == 5
    assert broker.tables.offsets.get("audit", "gone", 0) is None
    broker.tables.offsets.commit("billing", "orders", 0, 6)
    assert broker.tables.offsets.get("audit", "orders", 0) == 5
    await clone(broker, peer, topic="orders")
    assert broker.tables.offsets.get("audit", "orders", 0) == 6


async def test_progress_in_a_topic_without_members_is_cloned_only_for_offline_groups(
    broker: Broker, peer: FakePeer
) -> None:
    join(broker, peer, topic="others")
    await clone(broker, peer)
    assert broker.tables.offsets.get("audit", "orders", 0) is None
    await clone(broker, peer, offline=True)
    assert broker.tables.offsets.get("audit", "orders", 0) == 5
