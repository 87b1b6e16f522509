"""Clean-ups that an operator asks for."""

import logging

from roquet.broker.broker import Broker
from roquet.broker.tables.topics import is_system_topic
from roquet.net.router import Peer
from roquet.wire.call import Reply
from roquet.wire.calls.cleaning import CleanQueues, CleanTopics, DeleteExpired

log = logging.getLogger(__name__)


def clean_queues(broker: Broker, _call: CleanQueues, _peer: Peer) -> Reply:
    """Deletes what queues hold of messages that retention has deleted.

    A queue goes wholly when its topic has it no more; its groups' progress goes with it, since it
    would begin at 0 again.
    """

    def is_gone(topic: str, queue_id: int) -> bool:
        config = broker.topics.get(topic)
        if config is None:
            return not is_system_topic(topic, broker.config)
        return queue_id >= max(config.read_queue_nums, config.write_queue_nums)

    removed = broker.store.clean_queues(is_gone)
    for topic, queue_id in removed:
        broker.offsets.remove_queue(topic, queue_id)
    if removed:
        broker.save_progress()
        log.info("%d queues without messages are deleted", len(removed))
    return Reply()


def clean_topics(broker: Broker, _call: CleanTopics, _peer: Peer) -> Reply:
    """Deletes the queues of topics that have no settings any more."""
    strays = [
        topic
        for topic in broker.store.topics()
        if broker.topics.get(topic) is None and not is_system_topic(topic, broker.config)
    ]
    if strays:
        broker.forget_topics(strays)
        log.info("the queues of %d topics without settings are deleted", len(strays))
    return Reply()


def delete_expired(broker: Broker, _call: DeleteExpired, _peer: Peer) -> Reply:
    """Deletes the files of the log that are old enough, at whatever hour."""
    broker.store.expire(broker.clock.now_ms(), at_once=True)
    return Reply()
