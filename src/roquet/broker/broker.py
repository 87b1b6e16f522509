"""Broker: what a handler may touch."""

from collections.abc import Iterable, Sequence
from random import Random

import msgspec

from roquet.broker.admission import Admission
from roquet.broker.filtering.filter_cache import FilterCache
from roquet.broker.ingest.append import Ingest
from roquet.broker.ingest.retry_topics import RetryTopics
from roquet.broker.ingest.set_aside import SetAside
from roquet.broker.services.broker_rebalance import BrokerRebalance
from roquet.broker.services.flush import Flush
from roquet.broker.services.handover import Handover
from roquet.broker.services.long_polling import LongPolling
from roquet.broker.services.peer_brokers import PeerBrokers
from roquet.broker.services.pop_waiters import PopWaiters
from roquet.broker.services.registration import RegistrationTrigger
from roquet.broker.services.revive import PopRevive
from roquet.broker.services.sampling import StatisticsSampler
from roquet.broker.services.timer.timer import Timer
from roquet.broker.services.transactions.transactions import Transactions
from roquet.broker.settings.config import BrokerConfig
from roquet.broker.settings.runtime_settings import RuntimeSettings
from roquet.broker.statistics import Statistics
from roquet.broker.tables.clients import Clients
from roquet.broker.tables.cold_read_limits import ColdReadLimits
from roquet.broker.tables.delay_offsets import DelayOffsets
from roquet.broker.tables.former_readers import FormerReaders
from roquet.broker.tables.groups import Groups
from roquet.broker.tables.locks import Locks
from roquet.broker.tables.offset_resets import OffsetResets
from roquet.broker.tables.offsets import ConsumerOffsets
from roquet.broker.tables.ordered_pops import OrderedPops
from roquet.broker.tables.request_modes import RequestModes
from roquet.broker.tables.topics import Topics
from roquet.log_records import logger
from roquet.model import names
from roquet.model.errors import CallRefused, StoreError
from roquet.model.names import is_retry
from roquet.net.clock import Clock
from roquet.net.fair_share import FairShare
from roquet.net.router import Peer
from roquet.net.threads import in_thread
from roquet.rules import topic_id
from roquet.store.store import Store
from roquet.wire.calls.bodies import RequestMode
from roquet.wire.calls.heartbeat import ConsumersChanged
from roquet.wire.codes import ResponseCode
from roquet.wire.records.host_bytes import decode_host

log = logger(__name__)


class Broker(msgspec.Struct, frozen=True, kw_only=True):
    """The parts of one running broker."""

    config: BrokerConfig
    clock: Clock
    rng: Random
    memory: int
    """Bytes of the machine: what the page cache can hold is a share of it."""
    store: Store
    topics: Topics
    groups: Groups
    offsets: ConsumerOffsets
    clients: Clients
    locks: Locks
    retries: RetryTopics
    put: Ingest
    arrivals: LongPolling
    flush: Flush
    modes: RequestModes
    neighbours: PeerBrokers
    assigning: BrokerRebalance
    news: RegistrationTrigger
    handover: Handover
    revival: PopRevive
    orders: OrderedPops
    filters: FilterCache
    live: RuntimeSettings
    resets: OffsetResets
    former_readers: FormerReaders = msgspec.field(default_factory=FormerReaders)
    cold_read_limits: ColdReadLimits = msgspec.field(default_factory=ColdReadLimits)
    admission: Admission
    timer: Timer
    set_aside: SetAside
    delays: DelayOffsets
    share: FairShare
    """Which requests held all others up."""
    statistics: Statistics
    sampling: StatisticsSampler
    transactions: Transactions

    @property
    def address(self) -> str:
        """Where others reach this broker: ip:port."""
        return decode_host(self.put.store_host)

    @property
    def polls(self) -> PopWaiters:
        """Pops that wait."""
        return self.arrivals.polls

    def unreadable(self, topic: str) -> str | None:
        """Why clients may not read a topic's messages: they are not delivered yet. None: they may.

        Records stay readable by their position, which only who sent or lists them knows.
        """
        if topic not in names.INTERNAL_TOPICS or self.config.read_internal_topics:
            return None
        return (
            f"the topic[{topic}] holds messages that are not delivered yet: "
            "nobody reads it unless the broker has read_internal_topics=true"
        )

    def configure(self, config: BrokerConfig) -> None:
        """Other settings from now on: the one field of a running broker that is ever replaced."""
        msgspec.structs.force_setattr(self, "config", config)

    def save_progress(self) -> None:
        """Have the disk say how far all groups are: what an operator set survives a kill.

        As always the log goes first: progress that outlived the note of who was given a message
        would lose the message.
        """
        self.store.flush_log()
        self.offsets.save()
        self.orders.save()

    async def progress_saved(self) -> None:
        """Save how far all groups are, as `save_progress` does, in threads."""
        await self.offsets.saved(self.store.flush_log)
        await self.orders.saved(self.store.flush_log)

    def forget_topics(self, topics: Sequence[str]) -> None:
        """Topics are deleted: their messages, and all that was remembered of them.

        What is on the disk when this returns does not bring them back, whatever happens. Progress
        goes before the messages that it counts: what has a deleted one's number is another message.
        """
        now_ms = self.clock.now_ms()
        self.topics.renew_ids(topics, now_ms)
        for topic in topics:
            groups = {*self.clients.listeners(topic), *self.offsets.groups_of(topic)}
            peers = (peer for _, peer in self.clients.members(groups))
            self.former_readers.add(topic, peers, groups)
        self.offsets.remove_topics(topics)
        self.orders.forget(topics=topics)
        self.resets.forget(topics=topics)
        self.revival.forget(topics)
        self.save_progress()
        for topic in topics:
            self.store.delete_topic(topic)
        self.topics.remove_all(topics, now_ms)
        self.groups.forget_topics(topics, now_ms)
        self.statistics.forget(topics)
        self.arrivals.look_again(topics)

    async def clear_removed(self) -> None:
        """Delete the files of deleted topics in a thread: there may be thousands."""
        try:
            await in_thread(self.store.clear_removed)
        except (StoreError, OSError) as error:
            log.warning("files of deleted topics are left until the next start: %s", error)

    def commit(self, group: str, topic: str, queue_id: int, offset: int) -> bool:
        """Note a group's progress, unless it is beyond the queue's end; whether it was in bounds.

        Nobody has read there: the queue was another one, or lost its tail. Messages that are stored
        up to that offset later would never come.
        """
        if self.offsets.get(group, topic, queue_id) == offset:
            return True
        if offset > self.store.bounds(topic, queue_id)[1]:
            return False
        self.offsets.commit(group, topic, queue_id, offset)
        return True

    def notify(self, groups: Iterable[str]) -> None:
        """Tell the members of groups that they have to divide their queues again."""
        groups = list(groups)
        self.handover.changed(groups)
        if not self.config.notify_members:
            return
        for name, peer in self.clients.members(groups):
            settings = self.groups.get(name)
            if settings is None or settings.notify_consumer_ids_changed_enable:
                peer.oneway(ConsumersChanged(consumer_group=name))

    def check_topic_id(self, topic: str, known: str | None) -> None:
        """Refuse what is asked of a topic that was deleted; there may be another of its name."""
        if known is not None and topic_id.is_other_topic(known, self.topics.ids.get(topic)):
            raise CallRefused(
                ResponseCode.TOPIC_NOT_EXIST,
                f"topic {topic} was deleted and made anew: offsets of the one before mean nothing",
            )

    def forget(self, peer: Peer) -> None:
        """A client's connection has ended, or it has gone silent."""
        if peer.closed:
            self.former_readers.forget(peer)
        memberships = self.clients.memberships(peer)
        changed = self.clients.drop(peer)
        for group, member in memberships:
            self.left(group, member)
        self.notify(changed)

    def left(self, group: str, member: str) -> None:
        """A member is out of its group on one connection: what it held is free, if on all."""
        found = self.clients.consumers(group)
        rest = found.client_ids if found else []
        if member not in rest:
            self.locks.release(group, member)
            self.handover.left(group, member)
            self.assigning.table.left(group, member, rest)

    def mode(self, topic: str, group: str) -> RequestMode:
        """Whether a group pulls or pops a topic: what was set, else what the settings say."""
        if (found := self.modes.get(topic, group)) is not None:
            return found
        if is_retry(topic):
            return RequestMode()
        config = self.config
        return RequestMode(
            mode=config.default_request_mode, pop_share_queue_num=config.default_pop_share_queues
        )
