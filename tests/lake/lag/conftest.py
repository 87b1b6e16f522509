"""The topic of the tests of Spark's jobs, and groups with progress in it."""

from tests.spark.jobs.conftest import Topic, topic  # noqa: F401 - fixtures

from roquet.model.topic import SubscriptionGroup
from roquet.net.blocking import BlockingChannel
from roquet.wire.calls.admin.topic import CreateGroup
from roquet.wire.calls.offset import UpdateOffset
from roquet.wire.fastjson.codec import dumps


def commit_at(of: Topic, group: str, offset: int) -> None:
    """Create a group, and commit this offset in the queues of the first broker."""
    with BlockingChannel(of.running.broker_addrs[0]) as channel:
        channel.call(CreateGroup(body=dumps(SubscriptionGroup(group_name=group))))
        for queue_id in (0, 1):
            channel.call(UpdateOffset(
                consumer_group=group, topic="orders", queue_id=queue_id, commit_offset=offset
            ))  # fmt: skip
