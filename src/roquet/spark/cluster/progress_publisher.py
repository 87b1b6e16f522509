"""Progress publisher: a stream's offsets committed as a consumer group's, for operators' tools.

Spark's checkpoint decides what a stream reads; published offsets are never read back. So a broker
that refuses them causes a warning and does not stop the stream. Masters are looked up each time: a
former master accepts offsets as well, and nobody sees them there.
"""

from collections.abc import Mapping

import msgspec

from roquet.lake.queue_offsets import QueueOffsets
from roquet.log_records import logger
from roquet.model.errors import CallError, CallRefused, ConfigError, RoquetError, UsageError
from roquet.model.flags import Permission
from roquet.model.names import can_users_join, check_group, retry_topic
from roquet.model.topic import SubscriptionGroup
from roquet.spark.cluster.cluster_client import ClusterClient, twice
from roquet.spark.options import SourceOptions
from roquet.wire.calls.admin.topic import CreateGroup, CreateTopic
from roquet.wire.calls.offset import UpdateOffset
from roquet.wire.codes import ResponseCode
from roquet.wire.fastjson.codec import dumps

log = logger(__name__)


def check_progress_group(name: str) -> str:
    """The group's name; ConfigError when it is malformed or belongs to the system."""
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
        self._cluster = ClusterClient(
            msgspec.structs.replace(settings, timeout_ms=0), leaders_only=True
        )
        self._group = check_progress_group(group)
        self._published: QueueOffsets = {}
        self._masters: dict[str, str] = {}
        """Where the published offsets are, by broker."""
        self._failing: set[str] = set()

    def check(self) -> None:
        """Raise UsageError when the group has members: their progress would be overwritten.

        Brokers that cannot be reached are skipped.
        """
        for broker in self._brokers():
            self._check(broker)

    def _check(self, broker: str) -> None:
        try:
            members = self._cluster.group_members(broker, self._group)
        except CallError:
            return  # Apache brokers refuse the call for a group without members, too
        if members:
            raise UsageError(
                f"group {self._group!r} has members ({', '.join(members)}), whose progress would be"
                " overwritten: choose a group that nobody consumes with for publishProgress"
            )

    def publish(self, offsets: QueueOffsets, ids: Mapping[tuple[str, str], str] = {}) -> None:
        """Commit the offsets that changed; a broker that fails gets them the next time.

        Brokers on which the group has members by now are skipped. A new master gets all offsets: it
        may lack those that the former one accepted.
        """
        self._forget_former_masters()
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

    def _forget_former_masters(self) -> None:
        self._brokers()
        masters = dict(self._cluster.addresses)
        moved = {name for name, address in self._masters.items() if masters.get(name) != address}
        self._published = {
            queue: offset for queue, offset in self._published.items() if queue[1] not in moved
        }
        self._masters = masters

    def _save(self, broker: str, call: UpdateOffset) -> None:
        try:
            twice(lambda: self._cluster.ask(broker, call))
        except CallRefused as error:
            if error.code != ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST:
                raise
            self._create(broker)
            self._cluster.ask(broker, call)

    def _create(self, broker: str) -> None:
        """Create the group, and the retry topic by which mqadmin consumerProgress finds brokers."""
        group = SubscriptionGroup(group_name=self._group)
        self._cluster.ask(broker, CreateGroup(body=dumps(group)))
        perm = int(Permission.READ | Permission.WRITE)
        topic = retry_topic(self._group)
        self._cluster.ask(
            broker, CreateTopic(topic=topic, read_queue_nums=1, write_queue_nums=1, perm=perm)
        )

    def _brokers(self) -> list[str]:
        try:
            self._cluster.look_up()
        except RoquetError as error:
            log.debug("routes: %s", error)
        return sorted(self._cluster.addresses)
