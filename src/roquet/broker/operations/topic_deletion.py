"""Topic deletion: topics with their messages, and all that was remembered of them."""

from collections.abc import Collection, Mapping, Sequence

from roquet.broker.control import ControlPlane
from roquet.broker.delivery import DeliveryServices
from roquet.broker.log.message_log import MessageLog
from roquet.broker.operations.progress import save_progress
from roquet.broker.tables.broker_tables import BrokerTables
from roquet.log_records import logger
from roquet.model import names
from roquet.model.errors import StoreError
from roquet.net.threads import in_thread

log = logger(__name__)


def delete_topic_with_retries(
    message_log: MessageLog,
    delivery: DeliveryServices,
    tables: BrokerTables,
    control: ControlPlane,
    topic: str,
) -> None:
    """Delete a topic with the POP retry topics of its groups, or their part in shared ones."""
    # Also of groups without progress: one that was deleted may be made again.
    retry_topics = [
        each.topic_name
        for each in tables.topics
        if names.is_retry(each.topic_name) and each.topic_name.endswith(f"+{topic}")
    ]
    for group in tables.offsets.groups_of(topic):
        older = names.pop_retry_topic_v1(group, topic)
        if not tables.topics.get(older):
            continue
        if _is_shared(tables, older, topic):
            delivery.revive.settle_all(group, older)
            tables.offsets.commit(group, older, 0, message_log.store.bounds(older, 0)[1])
        else:
            retry_topics.append(older)
    delete_topics(message_log, delivery, tables, control, [topic, *retry_topics])


def _is_shared(tables: BrokerTables, retry_topic: str, topic: str) -> bool:
    """Whether an older name of a POP retry topic may also stand for another topic or a group."""
    origins = {*names.possible_origins(retry_topic)} - {topic}
    is_of_group = tables.groups.get(names.group_of_retry(retry_topic)) is not None
    return is_of_group or any(tables.topics.get(origin) for origin in origins)


def delete_topics(
    message_log: MessageLog,
    delivery: DeliveryServices,
    tables: BrokerTables,
    control: ControlPlane,
    topics: Sequence[str],
) -> None:
    """Delete topics: their messages, and all that was remembered of them.

    What is on the disk when this returns does not bring them back, whatever happens. Progress
    goes before the messages that it counts: the number of a deleted message is given again.
    """
    now_ms = control.clock.now_ms()
    tables.topics.renew_ids(topics, now_ms)
    _forget_progress(message_log, delivery, tables, topics)
    for topic in topics:
        message_log.store.delete_topic(topic)
    tables.topics.remove_all(topics, now_ms)
    tables.groups.forget_topics(topics, now_ms)
    control.statistics.forget(topics)
    message_log.counts.forget(topics)
    message_log.arrivals.look_again(topics)


def delete_copied_topics(
    message_log: MessageLog,
    delivery: DeliveryServices,
    tables: BrokerTables,
    control: ControlPlane,
    deleted: Mapping[str, int],
    gone: Collection[str],
) -> None:
    """Delete topics of a replica as its master did, in front of the master's positions.

    Those that are not `gone` have been made anew: their settings stay, and the messages behind the
    position. After a kill in the middle the next copy of the table finds what is left to do.
    """
    topics = [*deleted, *(topic for topic in gone if topic not in deleted)]
    _forget_progress(message_log, delivery, tables, topics)
    for topic, position in deleted.items():
        message_log.store.delete_topic_before(topic, position)
    tables.topics.remove_all(gone, control.clock.now_ms())
    control.statistics.forget(topics)
    message_log.counts.forget(topics)
    message_log.arrivals.look_again(topics)


def _forget_progress(
    message_log: MessageLog,
    delivery: DeliveryServices,
    tables: BrokerTables,
    topics: Sequence[str],
) -> None:
    """Forget how far groups were in topics, on the disk, too."""
    for topic in topics:
        groups = {*tables.clients.listeners(topic), *tables.offsets.groups_of(topic)}
        peers = (peer for _, peer in tables.clients.members(groups))
        tables.former_readers.add(topic, peers, groups)
    tables.offsets.remove_topics(topics)
    tables.ordered_pops.forget(topics=topics)
    tables.offset_resets.forget(topics=topics)
    delivery.revive.forget(topics)
    save_progress(message_log, tables)


async def clear_removed(message_log: MessageLog) -> None:
    """Delete the files of deleted topics in a thread: there may be thousands."""
    try:
        await in_thread(message_log.store.clear_removed)
    except (StoreError, OSError) as error:
        log.warning("files of deleted topics are left until the next start: %s", error)
