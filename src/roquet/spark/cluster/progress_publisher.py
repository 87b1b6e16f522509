"""Progress of a stream, published as a consumer group's: for the eyes of operators' tools.

The offsets in Spark's checkpoint are the truth; what is published is never read back. So a broker
that does not take it is worth a warning and no reason to stop.
"""

from collections.abc import Mapping

import msgspec

from roquet.log_records import logger
from roquet.model.errors import CallError, CallRefused, ConfigError, RoquetError, UsageError
from roquet.model.flags import Permission
from roquet.model.names import can_users_join, check_group, retry_topic
from roquet.model.topic import SubscriptionGroup
from roquet.spark.cluster.cluster_client import ClusterClient
from roquet.spark.options import SourceOptions
from roquet.spark.queue_offsets import QueueOffsets
from roquet.wire.calls.admin.group import GetConnections
from roquet.wire.calls.admin.topic import CreateGroup, CreateTopic
from roquet.wire.calls.bodies import ConsumerConnection
from roquet.wire.calls.offset import UpdateOffset
from roquet.wire.codes import ResponseCode
from roquet.wire.fastjson.codec import dumps, loads

log = logger(__name__)


def check_progress_group(name: str) -> str:
    """A group that progress may be published to, by its name alone; ConfigError for others."""
    try:
        check_group(name)
    except UsageError as error:
        raise ConfigError(f"publishProgress: {error}") from None
    if not can_users_join(name):
        raise ConfigError(f"publishProgress: {name!r} belongs to the system; choose another group")
    return name


class ProgressPublisher:
    """Saves a stream's offsets as the progress of a group that has no members."""

    def __init__(self, settings: SourceOptions, group: str) -> None:
        self._cluster = ClusterClient(msgspec.structs.replace(settings, timeout_ms=0))
        self._group = check_progress_group(group)
        self._published: QueueOffsets = {}
        self._failing: set[str] = set()

    def check(self) -> None:
        """UsageError when the group has members: theirs is the progress that would be lost.

        Brokers that are away are not asked.
        """
        for broker in self._brokers():
            self._check(broker)

    def _check(self, broker: str) -> None:
        try:
            reply = self._cluster.ask(broker, GetConnections(consumer_group=self._group))
        except CallError:
            return  # the genuine answer for a group without members is a refusal, too
        members = loads(bytes(reply.body), ConsumerConnection).connection_set
        if members:
            who = ", ".join(sorted(member.client_id for member in members))
            raise UsageError(
                f"group {self._group!r} has members ({who}), whose progress would be"
                " overwritten: choose a group that nobody consumes with for publishProgress"
            )

    def publish(self, offsets: QueueOffsets, ids: Mapping[tuple[str, str], str] = {}) -> None:
        """Tell the brokers what is new; those that do not take it hear the next time.

        Nothing is told where the group has got members meanwhile.
        """
        failed, checked = dict[str, Exception](), set[str]()
        for queue, offset in sorted(offsets.items()):
            broker = queue[1]
            if self._published.get(queue) == offset or broker in failed:
                continue
            topic, _, queue_id = queue
            call = UpdateOffset(
                consumer_group=self._group,
                topic=topic,
                queue_id=queue_id,
                commit_offset=offset,
                topic_id=ids.get((topic, broker)),
            )
            try:
                if broker not in checked:
                    self._check(broker)
                checked.add(broker)
                self._save(broker, call)
            except RoquetError as error:
                failed[broker] = error
            else:
                self._published[queue] = offset
        for broker in failed.keys() - self._failing:
            text = "broker %r does not take the progress of group %r: %s"
            log.warning(text, broker, self._group, failed[broker])
        self._failing = set(failed)

    def _save(self, broker: str, call: UpdateOffset) -> None:
        try:
            self._cluster.ask(broker, call)
        except CallRefused as error:
            if error.code != ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST:
                raise
            self._create(broker)
            self._cluster.ask(broker, call)
        except CallError:
            self._cluster.ask(broker, call)  # the connection may have ended since the last time

    def _create(self, broker: str) -> None:
        """The group, and the retry topic by which `mqadmin consumerProgress` finds its brokers."""
        group = SubscriptionGroup(group_name=self._group)
        self._cluster.ask(broker, CreateGroup(body=dumps(group)))
        perm = int(Permission.READ | Permission.WRITE)
        topic = retry_topic(self._group)
        self._cluster.ask(
            broker, CreateTopic(topic=topic, read_queue_nums=1, write_queue_nums=1, perm=perm)
        )

    def _brokers(self) -> list[str]:
        try:
            for topic in self._cluster.topics():
                self._cluster.route(topic)
        except RoquetError as error:
            log.debug("routes: %s", error)
        return sorted(self._cluster.addresses)
