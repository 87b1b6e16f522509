"""One pull of one queue, from the master or a replica."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from tests.client.conftest import FakeBroker, FakeCluster, config_of, fake_cluster, session_of

from roquet.client.config import ConsumerConfig
from roquet.client.connection.session import Session
from roquet.client.reading.pull_request import PulledFrom, Puller, SubscriptionFilter, check_filters
from roquet.model.errors import CallRefused, ConnectFailed, UsageError
from roquet.model.flags import PullFlag
from roquet.model.queue import MessageQueue
from roquet.model.subscription import HeartbeatData
from roquet.net.router import Peer
from roquet.rules.replication.read_from import AVOID_MS, ReadFrom
from roquet.testing.clock import this_loop
from roquet.wire.call import Reply
from roquet.wire.calls.bodies import CheckClientBody
from roquet.wire.calls.heartbeat import CheckSubscription
from roquet.wire.calls.pull import PullReply
from roquet.wire.codes import ResponseCode
from roquet.wire.fastjson import codec

QUEUE = MessageQueue("t", "a", 0)


def test_a_filter_has_tags_and_their_hashes() -> None:
    message_filter = SubscriptionFilter.by_tags("t", " TagA ||TagB", 7)
    assert message_filter.tags == frozenset({"TagA", "TagB"})
    assert message_filter.subscription.tags_set == ["TagA", "TagB"]
    assert message_filter.subscription.code_set == [2598919, 2598920]
    assert message_filter.subscription.sub_version == 7


def test_the_filter_of_all_messages_has_no_tags() -> None:
    message_filter = SubscriptionFilter.by_tags("t", "*", 7)
    assert (message_filter.tags, message_filter.subscription.tags_set) == (None, [])


def test_an_expression_without_tags_is_refused() -> None:
    with pytest.raises(UsageError, match="names no tag"):
        SubscriptionFilter.by_tags("t", "||", 7)


def test_a_filter_may_be_an_expression_on_properties() -> None:
    config = ConsumerConfig()
    message_filter = SubscriptionFilter.from_user("t", "*", "a > 5", config)
    wanted = message_filter.subscription
    assert (message_filter.tags, wanted.tags_set, wanted.code_set) == (None, [], [])
    assert (wanted.sub_string, wanted.expression_type) == ("a > 5", "SQL92")
    assert (
        SubscriptionFilter.from_user("t", "A", None, config).subscription.expression_type == "TAG"
    )
    with pytest.raises(UsageError, match="by tags or by sql, not by both"):
        SubscriptionFilter.from_user("t", "A", "a > 5", config)


def test_a_bad_expression_is_refused_with_its_place() -> None:
    with pytest.raises(UsageError, match="at character 7 of 'a = 0 b'"):
        SubscriptionFilter.from_user("t", "*", "a = 0 b", ConsumerConfig())
    genuine = ConsumerConfig(sql_compatibility=True)
    assert (
        SubscriptionFilter.from_user("t", "*", "a = 0 b", genuine).subscription.sub_string
        == "a = 0 b"
    )


async def test_brokers_check_whether_they_support_an_expression() -> None:
    asked: list[CheckClientBody] = []

    async def answer(call: CheckSubscription, peer: Peer) -> Reply:
        asked.append(codec.loads(call.body, CheckClientBody))
        wanted = asked[-1].subscription_data
        assert wanted is not None
        if wanted.sub_string == "refused":
            raise CallRefused(23, "no")
        return Reply()

    config: ConsumerConfig = config_of(ConsumerConfig)
    tags = SubscriptionFilter.from_user("t", "A", None, config)
    message_filter, other = (
        SubscriptionFilter.from_user("t", "*", sql, config) for sql in ("a > 5", "refused")
    )
    elsewhere = SubscriptionFilter.from_user("unknown", "*", "a > 5", config)
    async with fake_cluster(t={"a": 1}) as cluster:
        cluster.a.router.add(CheckSubscription, answer)
        session = Session(cluster.address, config)
        session.start(lambda: HeartbeatData(client_id="me"))
        await check_filters(session, "g", [tags, message_filter, elsewhere])
        [said] = asked
        assert (said.group, said.client_id) == ("g", session.identity.client_id)
        assert said.subscription_data == message_filter.subscription
        with pytest.raises(CallRefused):
            await check_filters(session, "g", [other])
        await session.close()


async def test_an_unreachable_broker_fails_no_check(caplog: pytest.LogCaptureFixture) -> None:
    config: ConsumerConfig = config_of(ConsumerConfig)
    async with session_of("127.0.0.1:1", config) as session:
        await check_filters(session, "g", [SubscriptionFilter.from_user("t", "*", "a > 5", config)])
    assert "no broker could be asked whether it supports the filter" in caplog.text


async def test_a_pull_names_its_filter() -> None:
    async with fake_cluster(t={"a": 1}) as cluster:
        config: ConsumerConfig = config_of(ConsumerConfig)
        session = Session(cluster.address, config)
        session.start(lambda: HeartbeatData(client_id="me"))
        await session.routes.refresh("t")
        puller = Puller(session, config, "g", saves_progress=True)
        message_filter = SubscriptionFilter.by_tags("t", "TagA", 7)
        cluster.a.put("t", 0, b"x")
        await puller.pull(QUEUE, 0, message_filter, count=9)
        await puller.pull(QUEUE, 1, message_filter, count=9, suspend_ms=700, progress=1)
        plain, held = cluster.a.pulls
        assert (plain.sys_flag, plain.commit_offset, plain.max_msg_nums) == (4, 0, 9)
        assert (held.sys_flag, held.commit_offset, held.suspend_timeout_millis) == (7, 1, 700)
        assert (held.subscription, held.expression_type, held.sub_version) == ("TagA", "TAG", 7)
        assert this_loop().clock.monotonic_ms() == 700
        await session.close()


class Reader:
    """A puller of one queue, and the brokers that it reads."""

    def __init__(self, puller: Puller, cluster: FakeCluster, session: Session) -> None:
        self.puller = puller
        self.cluster = cluster
        self.session = session
        self.filter = SubscriptionFilter.by_tags("t", "*", 1)

    @property
    def master(self) -> FakeBroker:
        return self.cluster.a

    @property
    def replica(self) -> FakeBroker:
        return self.cluster.replicas["a"][1]

    def put(self, *bodies: bytes) -> None:
        """Store messages at both."""
        self.master.put("t", 0, *bodies)
        self.replica.put("t", 0, *bodies)

    async def pull(
        self, offset: int, *, suspend_ms: int = 0, progress: int | None = None
    ) -> PulledFrom:
        return await self.puller.pull(
            QUEUE, offset, self.filter, count=1, suspend_ms=suspend_ms, progress=progress
        )

    async def pull_from(self, offset: int) -> tuple[int | None, int]:
        """The broker id that answers, and the next offset."""
        pulled = await self.pull(offset)
        return pulled.broker_id, pulled.reply.next_begin_offset


@asynccontextmanager
async def reader_of(**settings: Any) -> AsyncIterator[Reader]:
    async with fake_cluster(t={"a": 1}) as cluster:
        await cluster.add_replica("a")
        config: ConsumerConfig = config_of(ConsumerConfig, **settings)
        async with session_of(cluster.address, config, "t") as session:
            yield Reader(Puller(session, config, "g", saves_progress=True), cluster, session)


def suggestion(broker_id: int, next_offset: int = 0) -> PullReply:
    return PullReply(
        code=ResponseCode.PULL_NOT_FOUND,
        suggest_which_broker_id=broker_id,
        next_begin_offset=next_offset,
        min_offset=0,
        max_offset=next_offset,
    )


async def test_a_pull_goes_to_the_broker_that_the_last_reply_suggested() -> None:
    async with reader_of() as reader:
        reader.put(b"x", b"y")
        reader.master.pull_answers.append(suggestion(1))
        assert await reader.pull_from(0) == (0, 0)
        assert await reader.pull_from(0) == (1, 1)
        assert await reader.pull_from(1) == (0, 2), "the replica suggests its master"


async def test_a_suggested_broker_that_is_missing_is_replaced_by_another() -> None:
    async with reader_of() as reader:
        reader.put(b"x")
        reader.master.pull_answers.append(suggestion(3))
        assert await reader.pull_from(0) == (0, 0)
        assert await reader.pull_from(0) == (0, 1)


async def test_a_replica_is_preferred_while_it_has_messages() -> None:
    async with reader_of(read_from=ReadFrom.REPLICA) as reader:
        reader.put(b"x", b"y")
        reader.master.put("t", 0, b"only there")
        assert [await reader.pull_from(offset) for offset in range(3)] == [(1, 1), (1, 2), (0, 3)]
        asked = len(reader.replica.pulls)
        assert await reader.pull_from(0) == (0, 1), "a replica that lacked messages is left alone"
        await this_loop().clock.sleep(AVOID_MS)
        assert await reader.pull_from(0) == (1, 1)
        assert len(reader.replica.pulls) == asked + 1


@pytest.mark.parametrize(
    ("code", "next_offset"),
    [
        (ResponseCode.PULL_RETRY_IMMEDIATELY, 1),
        (ResponseCode.PULL_OFFSET_MOVED, 0),
        (ResponseCode.PULL_OFFSET_MOVED, 9),
        (ResponseCode.PULL_NOT_FOUND, 1),
    ],
)
async def test_a_replica_that_lacks_messages_moves_no_reader(
    code: ResponseCode, next_offset: int
) -> None:
    async with reader_of(read_from=ReadFrom.REPLICA) as reader:
        reader.master.put("t", 0, b"x", b"y")
        answer = PullReply(
            code=code, next_begin_offset=next_offset, min_offset=next_offset, max_offset=9
        )
        reader.replica.pull_answers += [answer, answer]
        assert await reader.pull_from(1) == (0, 2)
        await reader.cluster.lose_master("a")
        await reader.session.routes.refresh("t")
        reply = (await reader.pull(1)).reply
        assert (reply.code, reply.next_begin_offset) == (ResponseCode.PULL_NOT_FOUND, 1)


async def test_messages_that_a_replica_filtered_are_passed() -> None:
    async with reader_of(read_from=ReadFrom.REPLICA) as reader:
        reader.replica.pull_answers.append(
            PullReply(
                code=ResponseCode.PULL_RETRY_IMMEDIATELY,
                next_begin_offset=8,
                min_offset=0,
                max_offset=9,
            )
        )
        assert await reader.pull_from(1) == (1, 8)


async def test_a_replica_that_does_not_know_the_topic_yet_sends_the_reader_to_its_master() -> None:
    async with reader_of(read_from=ReadFrom.REPLICA) as reader:
        reader.put(b"x")
        reader.replica.pull_faults.append(CallRefused(ResponseCode.TOPIC_NOT_EXIST, "not yet"))
        assert await reader.pull_from(0) == (0, 1)


async def test_a_dead_replica_sends_the_reader_to_its_master_and_a_dead_master_back() -> None:
    async with reader_of(read_from=ReadFrom.REPLICA) as reader:
        reader.put(b"x")
        await reader.replica.server.stop(0)
        assert await reader.pull_from(0) == (0, 1)
    async with reader_of(read_from=ReadFrom.MASTER) as reader:
        reader.put(b"x")
        assert await reader.pull_from(0) == (0, 1)
        await reader.master.server.stop(0)
        assert await reader.pull_from(0) == (1, 1)


async def test_the_first_failure_is_raised_when_no_member_answers() -> None:
    async with reader_of() as reader:
        master = reader.master.address
        await reader.master.server.stop(0)
        await reader.replica.server.stop(0)
        with pytest.raises(ConnectFailed, match=master):
            await reader.pull(0)


async def test_a_refusal_of_the_master_is_final() -> None:
    async with reader_of() as reader:
        reader.put(b"x")
        reader.master.pull_faults.append(CallRefused(ResponseCode.NO_PERMISSION, "no"))
        with pytest.raises(CallRefused, match="no"):
            await reader.pull(0)
        assert not reader.replica.pulls


async def test_an_offset_is_committed_by_a_pull_from_the_master_alone() -> None:
    async with reader_of(read_from=ReadFrom.REPLICA) as reader:
        reader.put(b"x")
        assert (await reader.pull(0, progress=5)).broker_id == 1
        flags = PullFlag(reader.replica.pulls[0].sys_flag)
        assert PullFlag.COMMIT_OFFSET not in flags
        assert reader.replica.pulls[0].commit_offset == 0
        assert (await reader.pull(1, progress=5)).broker_id == 0
        assert reader.master.committed == {("g", "t", 0): 5}


async def test_only_a_broker_that_cannot_be_behind_is_asked_to_wait() -> None:
    async with reader_of(read_from=ReadFrom.REPLICA) as reader:
        assert (await reader.pull(0, suspend_ms=9_000)).broker_id == 0
        assert [pull.suspend_timeout_millis for pull in reader.replica.pulls] == [0]
        assert [pull.suspend_timeout_millis for pull in reader.master.pulls] == [9_000]
        await reader.cluster.lose_master("a")
        await reader.session.routes.refresh("t")
        assert (await reader.pull(0, suspend_ms=9_000)).broker_id is None
        assert reader.replica.pulls[-1].suspend_timeout_millis == 9_000
