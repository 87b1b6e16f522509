"""Parts that follow changed settings while the broker runs."""

import asyncio
import logging
from pathlib import Path

import pytest
from tests.broker.conftest import FakePeer, MakeSend, config_of

from roquet.broker.app import BrokerServer
from roquet.broker.handlers.messages.send import SendHandler
from roquet.broker.operations.topic_deletion import TopicDeletion
from roquet.model.errors import CallRefused
from roquet.observe.log_levels import apply_log_levels
from roquet.testing.clock import in_virtual_time, this_loop


async def test_how_many_requests_may_wait_changes_while_the_broker_runs() -> None:
    async with BrokerServer(config_of()) as server:
        broker = server.broker
        broker.control.settings.change({"sendThreadPoolQueueCapacity": "77"}, 0)
        assert broker.control.admission.gates["send"].limits.count == 77


@in_virtual_time
async def test_whether_topics_come_by_themselves_changes_for_messages_that_wait(
    message: MakeSend, peer: FakePeer
) -> None:
    async with BrokerServer(config_of(), this_loop().clock) as server:
        broker = server.broker
        later = {"a": "DELAY\x011\x02", "b": "TIMER_DELAY_MS\x012000\x02"}
        for topic, properties in later.items():
            broker.bind(SendHandler.send)(message(topic=topic, properties=properties), peer)
        broker.make(TopicDeletion).delete(["a", "b"])
        broker.control.settings.change({"autoCreateTopicEnable": "false"}, 0)
        await asyncio.sleep(4)
        assert [broker.log.store.bounds(topic, 0) for topic in later] == [(0, 1), (0, 1)]
        assert [broker.tables.topics.get(topic) for topic in later] == [None, None]


async def test_no_retention_is_too_short_for_what_waits(
    tmp_path: Path, peer: FakePeer, message: MakeSend, caplog: pytest.LogCaptureFixture
) -> None:
    async with BrokerServer(config_of(tmp_path)) as server:
        broker = server.broker
        broker.control.settings.change({"fileReservedTime": "1"}, 0)
        assert "messages may wait 7200000 ms at a delay level" in caplog.text
        broker.control.settings.change({"fileReservedTime": "72"}, 0)
        broker.bind(SendHandler.send)(message(properties="TIMER_DELAY_SEC\x0186400\x02"), peer)
        async with asyncio.timeout(5):
            while broker.delivery.timer.checkpoint.offset < 1:  # noqa: ASYNC110 - it calls nobody back
                await asyncio.sleep(0.01)
        with pytest.raises(CallRefused, match="messages wait for their delivery time"):
            broker.control.settings.change({"fileReservedTime": "24"}, 0)
        assert broker.control.settings.config.retention == 72 * 3_600_000
        broker.control.settings.change({"fileReservedTime": "48"}, 0)
    caplog.clear()
    async with BrokerServer(config_of(tmp_path, retention=3_600_000)):
        assert "messages wait for their delivery time for longer" in caplog.text


async def test_log_levels_follow_the_settings_while_the_broker_runs(tmp_path: Path) -> None:
    net = logging.getLogger("roquet.net")
    try:
        async with BrokerServer(config_of(tmp_path, log_levels="roquet.net:ERROR")) as server:
            assert net.level == logging.ERROR
            server.broker.control.settings.change({"log_levels": "roquet.net:DEBUG"}, 1)
            assert net.level == logging.DEBUG
            server.broker.control.settings.change({"log_levels": ""}, 2)
            assert net.level == logging.NOTSET
    finally:
        apply_log_levels("")
