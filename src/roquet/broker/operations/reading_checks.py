"""Reading checks: whether a client may read a queue, in the order of Apache's broker.

pull    broker · group · topic · queue · id of the topic · group and topic · broadcasting
pop     broker · topic · queue · group · group and topic
"""

from typing import Final, NoReturn

from roquet.broker.broker import BrokerComponent
from roquet.broker.control import ControlPlane
from roquet.broker.refusals import invalid_parameter, no_group, no_topic
from roquet.broker.tables.broker_tables import BrokerTables
from roquet.model.errors import CallRefused
from roquet.model.names import INTERNAL_TOPICS
from roquet.model.subscription import MessageModel
from roquet.model.topic import SubscriptionGroup, TopicConfig
from roquet.wire.calls.pop import Notification, Peek, PollingInfo, Pop
from roquet.wire.codes import HELP, ResponseCode
from roquet.wire.plain_pull import AnyPull

AnyPop = Pop | Peek | Notification | PollingInfo

FORBIDDEN_BROKER: Final = 1
FORBIDDEN_GROUP: Final = 2
FORBIDDEN_TOPIC: Final = 3
FORBIDDEN_BROADCAST: Final = 4
FORBIDDEN_SUBSCRIPTION: Final = 5
"""Reasons of a refused pull, as on the wire."""

NO_GROUP_TO_PULL: Final = f"subscription group [{{}}] does not exist, {HELP}"
NO_GROUP_TO_POP: Final = "subscription group not exist, {}"


class ReadForbidden(CallRefused):
    """A read without the permission; the reply to a pull names the reason by its number."""

    def __init__(self, reason: int, remark: str) -> None:
        super().__init__(ResponseCode.NO_PERMISSION, remark)
        self.reason = reason


class ReadingChecks(BrokerComponent, frozen=True):
    """Checks of requests that read a queue. All raise CallRefused."""

    tables: BrokerTables
    control: ControlPlane

    def check_pull(self, call: AnyPull) -> None:
        """Check a pull; a new group is created if the settings allow it."""
        if not self.control.settings.config.readable:
            self._refuse_broker("pulling")
        group = self._group(call.consumer_group, NO_GROUP_TO_PULL)
        self._topic(call, "pulling", 0)
        if call.topic_id is not None:
            self.tables.topics.check_id(call.topic, call.topic_id)
        if self.tables.groups.forbidden:
            self._check_subscription(call)
        if not group.consume_broadcast_enable:
            self._check_broadcast(call.consumer_group)

    def check_pop(self, call: AnyPop) -> TopicConfig:
        """Check a request about popping; the settings of its topic."""
        topic = self._topic(call, "peeking", -1)
        self._group(call.consumer_group, NO_GROUP_TO_POP)
        if self.tables.groups.forbidden:
            self._check_subscription(call)
        return topic

    def check_pop_broker(self) -> None:
        """Check that this broker's messages may be popped."""
        if not self.control.settings.config.readable:
            self._refuse_broker("pop")

    def _refuse_broker(self, action: str) -> NoReturn:
        name = self.control.settings.config.broker_name
        raise ReadForbidden(FORBIDDEN_BROKER, f"the broker[{name}] {action} message is forbidden")

    def check_delivered(self, topic: str) -> None:
        """Check that a topic's messages are delivered: others are not read by clients.

        Records stay readable by their position, which only their sender and operators know.
        """
        if topic not in INTERNAL_TOPICS or self.control.settings.config.read_internal_topics:
            return
        raise ReadForbidden(
            FORBIDDEN_TOPIC,
            f"the topic[{topic}] holds messages that are not delivered yet: "
            "nobody reads it unless the broker has read_internal_topics=true",
        )

    def _group(self, name: str, absent: str) -> SubscriptionGroup:
        group = self.tables.groups.get(name)
        if group is None:
            group = self.tables.groups.find(name, self.control.clock.now_ms())
        if group is None:
            raise no_group(absent.format(name))
        if not group.consume_enable:
            raise ReadForbidden(FORBIDDEN_GROUP, f"subscription group no permission, {name}")
        return group

    def _topic(self, call: AnyPull | AnyPop, action: str, first_queue: int) -> TopicConfig:
        name = call.topic
        topic = self.tables.topics.get(name)
        if topic is None:
            raise no_topic(f"topic[{name}] not exist, apply first please! {HELP}")
        if name in INTERNAL_TOPICS:
            self.check_delivered(name)
        if not topic.perm & 4:
            raise ReadForbidden(FORBIDDEN_TOPIC, f"the topic[{name}] {action} message is forbidden")
        count = topic.read_queue_nums
        if not first_queue <= call.queue_id < count or not count:
            raise invalid_parameter(
                f"queueId[{call.queue_id}] is illegal, topic:[{name}] "
                f"topicConfig.readQueueNums:[{count}]"
            )
        return topic

    def _check_subscription(self, call: AnyPull | AnyPop) -> None:
        if not self.tables.groups.may_read(call.consumer_group, call.topic):
            raise ReadForbidden(
                FORBIDDEN_SUBSCRIPTION,
                f"the consumer group[{call.consumer_group}] is forbidden for topic[{call.topic}]",
            )

    def _check_broadcast(self, group: str) -> None:
        members = self.tables.clients.consumers(group)
        if members is not None and members.message_model is MessageModel.BROADCASTING:
            raise ReadForbidden(
                FORBIDDEN_BROADCAST, f"the consumer group[{group}] can not consume by broadcast way"
            )
