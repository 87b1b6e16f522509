"""Failed messages are sent back, retried here or dropped."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from tests.client.conftest import FakeCluster, config_of, fake_cluster, session_of
from tests.client.reading.test_message import RecordingOwner

from roquet.client.config import ConsumerConfig
from roquet.client.reading.message import DEAD_LETTER, InboundMessage
from roquet.client.reading.retry import (
    FailurePolicy,
    RetryByBroker,
    RetryLocally,
    RetryOrdered,
    RetrySender,
    delay_level,
    drop_failed,
)
from roquet.model.errors import CallRefused
from roquet.model.queue import MessageQueue
from roquet.net.router import Peer
from roquet.wire.call import Reply
from roquet.wire.calls.query import ViewMessage
from roquet.wire.calls.send import Send, SendReply
from roquet.wire.codes import ResponseCode
from roquet.wire.records import record
from roquet.wire.records.message_id import offset_message_id

HOST = bytes((10, 0, 0, 1, 0, 0, 42, 159))
RETRY = "%RETRY%g"


def message(times: int = 0, **properties: str) -> InboundMessage:
    raw = record.pack(
        0, 5, 3, 4096, 0, 11, HOST, 12, HOST, times, 0, b"x", b"t",
        record.encode_properties({"UNIQ_KEY": "ID", **properties}),
    )  # fmt: skip
    return InboundMessage(MessageQueue("t", "a", 0), record.decode(raw), RecordingOwner())


@asynccontextmanager
async def back_of(cluster: FakeCluster, **settings: Any) -> AsyncIterator[RetrySender]:
    config: ConsumerConfig = config_of(ConsumerConfig, **settings)
    async with session_of(cluster.address, config, "t") as session:
        yield RetrySender(session, config, "g")


def test_a_delay_becomes_the_first_level_that_is_long_enough() -> None:
    delays = (None, DEAD_LETTER, 0, 1, 1_000, 1_001, 10_000, 60_000, 1 << 40)
    assert [delay_level(ms) for ms in delays] == [0, -1, 1, 1, 1, 2, 3, 5, 18]


async def test_a_send_back_names_all_that_the_broker_needs() -> None:
    async with fake_cluster(t={"a": 1}) as cluster, back_of(cluster, retries_max=7) as back:
        sent: list[int] = []
        failures = RetryByBroker(back, lambda: sent.append(1))
        assert await failures(message(), None) is None
        assert await failures(message(), DEAD_LETTER) is None
        first, last = cluster.a.sent_back
        assert (first.offset, first.group, first.delay_level) == (4096, "g", 0)
        assert (first.origin_msg_id, first.origin_topic) == ("ID", "t")
        assert (first.max_reconsume_times, first.broker_name) == (7, "a")
        assert last.delay_level == -1
        assert sent == [1, 1]


async def test_a_send_back_goes_to_another_broker_when_its_own_refuses() -> None:
    async with (
        fake_cluster(**{"t": {"a": 1, "b": 1}, RETRY: {"a": 1, "b": 1}}) as cluster,
        back_of(cluster) as back,
    ):
        cluster.a.back_faults = [CallRefused(1, "no")] * 2
        failures = RetryByBroker(back, lambda: None)
        failed = message(2, TRAN_MSG="true", KEYS="k", DELAY="9", WAIT="false")
        assert await failures(failed, None) is None
        assert await failures(message(2), DEAD_LETTER) is None
        again, dead = cluster.brokers["b"].sends
        assert (again.topic, again.reconsume_times, again.body) == (RETRY, 3, b"x")
        assert record.decode_properties(again.properties.encode()) == {
            "UNIQ_KEY": "ID",
            "KEYS": "k",
            "RETRY_TOPIC": "t",
            "ORIGIN_MESSAGE_ID": "ID",
            "DELAY": "5",
        }
        assert (dead.reconsume_times, dead.max_reconsume_times) == (3, 0)


async def test_a_message_stored_less_durably_than_promised_counts_once_readers_see_it() -> None:
    async with (
        fake_cluster(**{"t": {"a": 1}, RETRY: {"a": 1}}) as cluster,
        back_of(cluster) as back,
    ):
        send, shown = cluster.a.send, list[bytes]()

        async def send_less_durably(call: Send, peer: Peer) -> SendReply:
            await send(call, peer)
            text = offset_message_id(HOST, 100 * (len(cluster.a.queues[RETRY, 0]) - 1))
            return SendReply(code=ResponseCode.FLUSH_SLAVE_TIMEOUT, msg_id=text)

        def view(call: ViewMessage, _peer: Peer) -> Reply:
            assert call.topic is None, "the retry topic is not the group's to look at"
            if not shown:
                raise CallRefused(ResponseCode.SYSTEM_ERROR, "can not find message")
            return Reply(body=shown[0] if call.offset == 0 else cluster.a.queues[RETRY, 0][-1])

        cluster.a.handlers[Send] = send_less_durably
        cluster.a.handlers[ViewMessage] = view
        cluster.a.router.add(ViewMessage, view)
        cluster.a.back_faults = [CallRefused(1, "no")] * 3
        failures = RetryByBroker(back, lambda: None)
        assert await failures(message(), None) == 5_000, "nobody sees it"
        shown += [cluster.a.queues[RETRY, 0][0]]
        assert await failures(message(), None) is None
        other = record.pack(
            0, 0, 0, 0, 0, 1, HOST, 2, HOST, 0, 0, b"x", b"t",
            record.encode_properties({"UNIQ_KEY": "OTHER"}),
        )  # fmt: skip
        cluster.a.queues[RETRY, 0].clear()
        shown[0] = other
        assert await failures(message(), None) == 5_000, "another is in its place"


async def test_a_message_that_no_broker_takes_is_retried_locally_and_logged_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with fake_cluster(t={"a": 1}) as cluster, back_of(cluster) as back:
        cluster.a.back_faults = [CallRefused(1, "no")] * 2
        failures = RetryByBroker(back, lambda: None)
        assert await failures(message(), None) == 5_000
        assert await failures(message(), 100) == 5_000
        assert caplog.text.count("failed messages are tried again here") == 1


async def test_an_ordered_message_stays_in_its_place_until_its_last_try() -> None:
    async with (
        fake_cluster(**{"t": {"a": 1}, RETRY: {"a": 1}}) as cluster,
        back_of(cluster, retries_max=3) as back,
    ):
        config = config_of(ConsumerConfig, retries_max=3)
        failures = RetryOrdered(config, back)
        assert await failures(message(2), None) == 1_000
        assert await failures(message(2), 77) == 77
        cluster.a.faults = [CallRefused(1, "no")]
        assert await failures(message(3), None) == 1_000
        assert await failures(message(3), None) is None
        assert cluster.a.sends[-1].reconsume_times == 3
        assert await failures(message(0), DEAD_LETTER) is None
        assert cluster.a.sent_back[0].delay_level == -1


async def test_a_broadcast_ordered_message_ends_with_its_last_try() -> None:
    failures = RetryOrdered(config_of(ConsumerConfig, retries_max=1), None)
    assert await failures(message(0), None) == 1_000
    assert await failures(message(1), None) is None


async def test_without_a_group_it_is_tried_here_until_it_is_given_up() -> None:
    async with fake_cluster(t={"a": 1}) as cluster, back_of(cluster) as back:
        failures = RetryLocally(back)
        assert await failures(message(2), None) == 4_000
        assert await failures(message(2), 5) == 5
        cluster.a.back_faults = [CallRefused(1, "no")]
        assert await failures(message(), DEAD_LETTER) == 5_000
        assert await failures(message(), DEAD_LETTER) is None


@pytest.mark.virtual_time(False)
async def test_a_broadcast_failure_is_logged_and_gone(caplog: pytest.LogCaptureFixture) -> None:
    policy: FailurePolicy = drop_failed
    assert await policy(message(), None) is None
    assert "is dropped" in caplog.text


async def test_the_log_names_the_fate_of_a_failed_message(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO")
    async with fake_cluster(t={"a": 1}) as cluster, back_of(cluster, retries_max=2) as back:
        for times in range(3):
            await RetryByBroker(back, lambda: None)(message(times), None)
    first, second, third = [one for one in caplog.records if one.name.endswith("retry")]
    assert "comes again: try 2 of 3" in first.getMessage()
    assert "comes again: try 3 of 3" in second.getMessage()
    assert "is a dead letter of group g after 3 tries" in third.getMessage()
    assert "comes again" not in third.getMessage()
