"""One pull of one queue."""

import pytest
from tests.client.conftest import FakeClusters, VirtualConfig

from roquet.client.config import ConsumerConfig
from roquet.client.connection.session import Session
from roquet.client.reading.pull_request import Puller, SubscriptionFilter, check_filters
from roquet.model.errors import CallRefused, UsageError
from roquet.model.queue import MessageQueue
from roquet.model.subscription import HeartbeatData
from roquet.net.router import Peer
from roquet.testing.clock import in_virtual_time, this_loop
from roquet.wire.call import Reply
from roquet.wire.calls.bodies import CheckClientBody
from roquet.wire.calls.heartbeat import CheckSubscription
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


@in_virtual_time
async def test_brokers_check_whether_they_support_an_expression(
    fakes: FakeClusters, virtual: VirtualConfig
) -> None:
    asked: list[CheckClientBody] = []

    async def answer(call: CheckSubscription, peer: Peer) -> Reply:
        asked.append(codec.loads(call.body, CheckClientBody))
        wanted = asked[-1].subscription_data
        assert wanted is not None
        if wanted.sub_string == "refused":
            raise CallRefused(23, "no")
        return Reply()

    config: ConsumerConfig = virtual(ConsumerConfig)
    tags = SubscriptionFilter.from_user("t", "A", None, config)
    message_filter, other = (
        SubscriptionFilter.from_user("t", "*", sql, config) for sql in ("a > 5", "refused")
    )
    elsewhere = SubscriptionFilter.from_user("unknown", "*", "a > 5", config)
    async with fakes(t={"a": 1}) as cluster:
        cluster.brokers["a"].router.add(CheckSubscription, answer)
        session = Session(cluster.address, config)
        session.start(lambda: HeartbeatData(client_id="me"))
        await check_filters(session, "g", [tags, message_filter, elsewhere])
        [said] = asked
        assert (said.group, said.client_id) == ("g", session.identity.client_id)
        assert said.subscription_data == message_filter.subscription
        with pytest.raises(CallRefused):
            await check_filters(session, "g", [other])
        await session.close()


@in_virtual_time
async def test_an_unreachable_broker_does_not_fail_the_check(
    virtual: VirtualConfig, caplog: pytest.LogCaptureFixture
) -> None:
    config: ConsumerConfig = virtual(ConsumerConfig)
    session = Session("127.0.0.1:1", config)
    session.start(lambda: HeartbeatData(client_id="me"))
    await check_filters(session, "g", [SubscriptionFilter.from_user("t", "*", "a > 5", config)])
    assert "no broker could be asked whether it supports the filter" in caplog.text
    await session.close()


@in_virtual_time
async def test_a_pull_names_its_filter(fakes: FakeClusters, virtual: VirtualConfig) -> None:
    async with fakes(t={"a": 1}) as cluster:
        config: ConsumerConfig = virtual(ConsumerConfig)
        session = Session(cluster.address, config)
        session.start(lambda: HeartbeatData(client_id="me"))
        await session.routes.refresh("t")
        puller = Puller(session, config, "g", saves_progress=True)
        message_filter = SubscriptionFilter.by_tags("t", "TagA", 7)
        cluster.brokers["a"].put("t", 0, b"x")
        await puller.pull(QUEUE, 0, message_filter, count=9)
        await puller.pull(QUEUE, 1, message_filter, count=9, suspend_ms=700, progress=1)
        plain, held = cluster.brokers["a"].pulls
        assert (plain.sys_flag, plain.commit_offset, plain.max_msg_nums) == (4, 0, 9)
        assert (held.sys_flag, held.commit_offset, held.suspend_timeout_millis) == (7, 1, 700)
        assert (held.subscription, held.expression_type, held.sub_version) == ("TagA", "TAG", 7)
        assert this_loop().clock.monotonic_ms() == 700
        await session.close()
