"""Progress publisher: a stream's offsets become a consumer group's."""

import time
from collections.abc import Iterator
from contextlib import closing
from typing import Any

import pytest
from tests.spark.conftest import CannedCluster, create_topic, send_columns

from roquet.client.blocking import PushConsumer
from roquet.model.errors import CallRefused, ConfigError, UsageError
from roquet.net.blocking import BlockingChannel
from roquet.spark.cluster.progress_publisher import ProgressPublisher, check_progress_group
from roquet.spark.options import parse
from roquet.testing.cluster import BlockingCluster
from roquet.wire.call import Call, Reply
from roquet.wire.calls.admin.group import GetConsumeStats
from roquet.wire.calls.bodies import ConsumerConnection, ConsumeStats
from roquet.wire.calls.offset import UpdateOffset
from roquet.wire.calls.route import GetRoute
from roquet.wire.fastjson.codec import dumps, loads

TOPIC = "orders"


@pytest.fixture(scope="module")
def running() -> Iterator[BlockingCluster]:
    """A broker with a topic of two queues, and three messages in the first."""
    with BlockingCluster() as cluster:
        create_topic(cluster, TOPIC)
        send_columns(cluster.broker_addrs[0], TOPIC, 0, body=["one", "two", "three"])
        yield cluster


def await_route(namesrv: str, topic: str) -> None:
    """The broker tells the name server of its new topic in its own time."""
    deadline = time.perf_counter() + 10
    with closing(BlockingChannel(namesrv)) as channel:
        while time.perf_counter() < deadline:
            try:
                channel.call(GetRoute(topic=topic))
            except CallRefused:
                time.sleep(0.02)
            else:
                return
    raise AssertionError("the topic never came to the name server")


def publisher(running: BlockingCluster, group: str) -> ProgressPublisher:
    return ProgressPublisher(parse({"namesrv": running.namesrv_addr, "topic": TOPIC}, {}), group)


def progress(running: BlockingCluster, group: str) -> dict[int, tuple[int, int]]:
    """The calls of `mqadmin consumerProgress`: committed offset and lag by queue."""
    with closing(BlockingChannel(running.broker_addrs[0])) as channel:
        reply = channel.call(GetConsumeStats(consumer_group=group))
        table = loads(bytes(reply.body), ConsumeStats).offset_table
    return {queue.queue_id: (one.consumer_offset, one.lag) for queue, one in table.items()}


def test_an_unknown_group_is_created_as_mqadmin_expects_it(running: BlockingCluster) -> None:
    publisher(running, "lake").publish({(TOPIC, "broker-a", 0): 1, (TOPIC, "broker-a", 1): 0})
    assert progress(running, "lake") == {0: (1, 2), 1: (0, 0)}
    await_route(running.namesrv_addr, "%RETRY%lake")  # consumerProgress finds brokers by it


def test_only_changed_offsets_are_published(running: BlockingCluster) -> None:
    progress_publisher = publisher(running, "again")
    progress_publisher.publish({(TOPIC, "broker-a", 0): 1})
    progress_publisher.publish({(TOPIC, "broker-a", 0): 3, (TOPIC, "broker-a", 1): 0})
    assert progress(running, "again") == {0: (3, 0), 1: (0, 0)}


def test_a_new_master_gets_all_offsets(canned: CannedCluster) -> None:
    """The former one is alive, and accepts offsets as well."""
    saved: list[tuple[str, int, int]] = []

    def answer(broker: str, call: Call[Any]) -> Reply:
        if isinstance(call, UpdateOffset):
            saved.append((canned.addresses[broker], call.queue_id, call.commit_offset))
        return Reply(body=dumps(ConsumerConnection()))

    canned.answer = answer
    settings = parse({"namesrv": canned.namesrv, "topic": "orders"}, {})
    progress_publisher = ProgressPublisher(settings, "lake")
    progress_publisher.publish({(TOPIC, "broker-a", 0): 1, (TOPIC, "broker-a", 1): 4})
    canned.addresses["broker-a"] = "elsewhere:1"
    progress_publisher.publish({(TOPIC, "broker-a", 0): 2, (TOPIC, "broker-a", 1): 4})
    progress_publisher.publish({(TOPIC, "broker-a", 0): 2, (TOPIC, "broker-a", 1): 4})
    assert saved == [
        ("broker-a:10911", 0, 1), ("broker-a:10911", 1, 4),
        ("elsewhere:1", 0, 2), ("elsewhere:1", 1, 4),
    ]  # fmt: skip


def test_a_broker_that_is_away_is_a_warning_once(
    running: BlockingCluster, caplog: pytest.LogCaptureFixture
) -> None:
    progress_publisher = publisher(running, "lake")
    for offset in (1, 2):
        progress_publisher.publish({(TOPIC, "broker-z", 0): offset, (TOPIC, "broker-a", 0): offset})
    warnings = [record.getMessage() for record in caplog.records if record.levelname == "WARNING"]
    assert len(warnings) == 1
    assert "broker 'broker-z' does not take the progress of group 'lake'" in warnings[0]
    assert progress(running, "lake")[0] == (2, 1)


def test_a_group_with_members_is_refused(
    running: BlockingCluster, caplog: pytest.LogCaptureFixture
) -> None:
    consumer = PushConsumer(running.namesrv_addr, group="billing", topic=TOPIC)
    progress_publisher = publisher(running, "billing")
    progress_publisher.check()  # nobody is in it
    with consumer:
        deadline = time.perf_counter() + 10
        refused = None
        while refused is None and time.perf_counter() < deadline:
            try:
                progress_publisher.check()
                time.sleep(0.05)
            except UsageError as error:
                refused = str(error)
        progress_publisher.publish({(TOPIC, "broker-a", 0): 1})
        assert "does not take the progress of group 'billing'" in caplog.text
    published = progress(running, "billing")
    assert 0 not in published or published[0][0] != 1, "it is that of its member, or none yet"
    assert refused is not None
    assert "group 'billing' has members (" in refused
    assert "choose a group that nobody consumes with" in refused


@pytest.mark.parametrize("name", ["", "a b", "x" * 300, "CID_RMQ_SYS_any", "%RETRY%billing"])
def test_names_that_no_group_may_have_are_refused(name: str) -> None:
    with pytest.raises(ConfigError, match="publishProgress: "):
        check_progress_group(name)


def test_other_names_are_taken() -> None:
    assert check_progress_group("orders-to-lake") == "orders-to-lake"
