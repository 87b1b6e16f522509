"""Topic and group configuration."""

from roquet.broker.broker import Broker
from roquet.broker.tables.topics import is_system_topic
from roquet.model import names
from roquet.model.errors import CallRefused
from roquet.model.topic import SubscriptionGroup, TopicConfig
from roquet.net.router import Peer
from roquet.wire import dialect
from roquet.wire.call import Reply
from roquet.wire.calls import topic as calls
from roquet.wire.calls.bodies import TopicsOfBroker
from roquet.wire.codes import ResponseCode


def create_topic(broker: Broker, call: calls.CreateTopic, _peer: Peer) -> Reply:
    """Creates a topic, or changes its settings."""
    _check_topic(broker, call.topic)
    if call.read_queue_nums < 0 or call.write_queue_nums < 0 or not 0 <= call.perm <= 15:
        raise _invalid(
            f"topic {call.topic}: {call.read_queue_nums} read queues, {call.write_queue_nums} "
            f"write queues and permission {call.perm} cannot be"
        )
    known = broker.topics.get(call.topic)
    made = TopicConfig(
        topic_name=call.topic,
        read_queue_nums=call.read_queue_nums,
        write_queue_nums=call.write_queue_nums,
        perm=call.perm,
        topic_filter_type=call.topic_filter_type,
        topic_sys_flag=call.topic_sys_flag or 0,
        order=call.order,
        attributes=_attributes(known.attributes if known else {}, call.attributes or ""),
    )
    broker.topics.put(made, broker.clock.now_ms())
    return Reply()


def delete_topic(broker: Broker, call: calls.DeleteTopic, _peer: Peer) -> Reply:
    """Deletes a topic with its messages and its groups' progress."""
    _check_topic(broker, call.topic)
    broker.topics.remove(call.topic, broker.clock.now_ms())
    broker.offsets.remove_topic(call.topic)
    broker.store.delete_topic(call.topic)
    return Reply()


def topics(broker: Broker, _call: calls.GetTopics, _peer: Peer) -> Reply:
    """All topics of this broker."""
    table = broker.topics.content()
    body = TopicsOfBroker(
        topic_config_table=table.topic_config_table, data_version=table.data_version
    )
    return Reply(body=dialect.dumps(body))


def topic(broker: Broker, call: calls.GetTopic, _peer: Peer) -> Reply:
    """One topic's settings."""
    found = broker.topics.get(call.topic)
    if found is None:
        raise CallRefused(
            ResponseCode.TOPIC_NOT_EXIST,
            f"No topic in this broker. topic: {call.topic}",
        )
    return Reply(body=dialect.dumps(found))


def create_group(broker: Broker, call: calls.CreateGroup, _peer: Peer) -> Reply:
    """Creates a consumer group, or changes its settings."""
    made = dialect.loads(call.body, SubscriptionGroup)
    if fault := names.group_fault(made.group_name):
        raise _invalid(fault)
    broker.groups.put(made, broker.clock.now_ms())
    return Reply()


def delete_group(broker: Broker, call: calls.DeleteGroup, _peer: Peer) -> Reply:
    """Deletes a consumer group, and its progress when asked to."""
    if names.is_system_group(call.group_name):
        raise _invalid(f"the group {call.group_name} belongs to the system")
    broker.groups.remove(call.group_name, broker.clock.now_ms())
    if call.clean_offset:
        broker.offsets.remove_group(call.group_name)
    return Reply()


def groups(broker: Broker, _call: calls.GetGroups, _peer: Peer) -> Reply:
    """All consumer groups of this broker."""
    return Reply(body=dialect.dumps(broker.groups.content()))


def group(broker: Broker, call: calls.GetGroup, _peer: Peer) -> Reply:
    """One consumer group's settings."""
    found = broker.groups.get(call.group)
    if found is None:
        raise CallRefused(
            ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST,
            f"No group in this broker. group: {call.group}",
        )
    return Reply(body=dialect.dumps(found))


def _check_topic(broker: Broker, topic: str) -> None:
    if fault := names.topic_fault(topic):
        raise _invalid(fault)
    if is_system_topic(topic, broker.config):
        raise _invalid(f"The topic[{topic}] is conflict with system topic.")


def _attributes(known: dict[str, str], changes: str) -> dict[str, str]:
    """What `+name=value,-name` makes of the attributes a topic has."""
    found = dict(known)
    for change in filter(None, (part.strip() for part in changes.split(","))):
        name, _, value = change[1:].partition("=")
        if change[0] == "+" and name and value:
            found[name] = value
        elif change[0] == "-" and name and not value:
            found.pop(name, None)
        else:
            raise _invalid(f"attribute {change!r}: +name=value or -name is wanted")
    return found


def _invalid(remark: str) -> CallRefused:
    return CallRefused(ResponseCode.INVALID_PARAMETER, remark)
