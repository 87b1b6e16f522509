"""Clients: connected producers and consumers, and the subscriptions of groups (in memory only)."""

from collections.abc import Iterable, Iterator, Mapping, Sequence

import msgspec

from roquet.model.subscription import (
    ConsumeFromWhere,
    ConsumerData,
    ConsumeType,
    HeartbeatData,
    MessageModel,
    Subscription,
)
from roquet.net.router import Peer
from roquet.rules.balance.group_consistency import without_retry_topics
from roquet.rules.liveness import LastSeen
from roquet.wire.codes import Language


class GroupMember(msgspec.Struct):
    """One client of a group, on one connection."""

    client_id: str
    peer: Peer
    message_model: MessageModel = MessageModel.CLUSTERING
    consume_type: ConsumeType = ConsumeType.CONSUME_PASSIVELY
    wishes: dict[str, str] = {}
    """Its subscriptions: topic → filter expression."""
    strategy: str | None = None
    """The allocation strategy that it names; None for genuine clients, which name none."""
    own_wish: int = 0
    """Hash of `wishes` without the retry topic: equal for equal subscriptions."""


class ConsumerGroup:
    """The members of a consumer group and their subscriptions."""

    def __init__(self) -> None:
        self.members: dict[Peer, GroupMember] = {}
        self.subscriptions: dict[str, Subscription] = {}
        self.consume_type = ConsumeType.CONSUME_PASSIVELY
        self.message_model = MessageModel.CLUSTERING
        self.consume_from_where = ConsumeFromWhere.CONSUME_FROM_LAST_OFFSET
        self.is_divided = False
        """Whether members last had different subscriptions."""
        self.is_changed = False
        """Whether members have come, gone or changed subscriptions since that check."""

    @property
    def client_ids(self) -> list[str]:
        """The members' ids, sorted; a client on two connections counts once."""
        return sorted({member.client_id for member in self.members.values()})

    def wants_different_things(self) -> bool:
        """Whether members have different subscriptions.

        Compares hashes, as there may be thousands.
        """
        wishes = {member.client_id: member.own_wish for member in self.members.values()}
        return len(set(wishes.values())) > 1

    def subscribe(self, data: ConsumerData) -> bool:
        """Take the subscriptions of a member's heartbeat; whether they have changed."""
        self.consume_type, self.message_model = data.consume_type, data.message_model
        self.consume_from_where = data.consume_from_where
        wanted = {subscription.topic: subscription for subscription in data.subscription_data_set}
        before = self.subscriptions
        self.subscriptions = {
            topic: _newer(before.get(topic), subscription) for topic, subscription in wanted.items()
        }
        return {t: s.sub_string for t, s in before.items()} != {
            t: s.sub_string for t, s in self.subscriptions.items()
        }


class Clients:
    """Connected clients: groups by name, their members by connection."""

    def __init__(self) -> None:
        self._producers: dict[str, dict[Peer, str]] = {}
        self._by_id: dict[str, Peer] = {}
        """The latest connection of each producer, by client id."""
        self._users: dict[Peer, str] = {}
        """Users of the connections with producers, by their latest heartbeats; none without access
        control."""
        self._consumers: dict[str, ConsumerGroup] = {}
        self._producing: dict[Peer, dict[str, None]] = {}
        self._consuming: dict[Peer, dict[str, None]] = {}
        """The groups of each connection, so that its end costs no more than it had. Ordered by
        arrival: behaviour must not depend on the order of a set."""
        self._signs: dict[Peer, LastSeen] = {}
        self._fingerprints: dict[Peer, int] = {}

    def __contains__(self, peer: Peer) -> bool:
        return peer in self._signs

    def consumers(self, group: str) -> ConsumerGroup | None:
        """A consumer group that has members."""
        return self._consumers.get(group)

    def member(self, group: str, peer: Peer) -> str | None:
        """The id of the member of a group that is on a connection."""
        members = self._consumers.get(group)
        member = members.members.get(peer) if members else None
        return member.client_id if member else None

    def memberships(self, peer: Peer) -> list[tuple[str, str]]:
        """The consumer groups that the client on a connection is in, and its id in each."""
        return [
            (name, self._consumers[name].members[peer].client_id)
            for name in self._consuming.get(peer, ())
        ]

    def group_counts(self, peer: Peer, data: HeartbeatData) -> tuple[int, int]:
        """Producer and consumer groups that a connection would have after a heartbeat."""
        producers = {producer.group_name for producer in data.producer_data_set}
        consumers = {consumer.group_name for consumer in data.consumer_data_set}
        return (
            len(producers.union(self._producing.get(peer, ()))),
            len(consumers.union(self._consuming.get(peer, ()))),
        )

    def producers(self, group: str) -> Sequence[Peer]:
        """The connections of a producer group."""
        return list(self._producers.get(group, ()))

    def producer(self, client_id: str) -> Peer | None:
        """The connection of one producer."""
        return self._by_id.get(client_id)

    def user(self, peer: Peer) -> str:
        """The user of a connection with producers; empty without access control."""
        return self._users.get(peer, "")

    def producer_ids(self, group: str) -> Mapping[Peer, str] | None:
        """The connections of a producer group and their client ids; None for an unknown group."""
        return self._producers.get(group)

    def producer_groups(self) -> list[str]:
        """The producer groups that have members."""
        return list(self._producers)

    def listeners(self, topic: str) -> list[str]:
        """The groups that subscribe to a topic."""
        return [name for name, group in self._consumers.items() if topic in group.subscriptions]

    def subscription(self, group: str, topic: str) -> Subscription | None:
        """A group's subscription to a topic."""
        members = self._consumers.get(group)
        return members.subscriptions.get(topic) if members else None

    def seen_ms(self, peer: Peer) -> int | None:
        """Monotonic ms of a client's last sign of life; None for an unknown client."""
        sign = self._signs.get(peer)
        return sign.seen_ms if sign else None

    def seen(self, peer: Peer, sign: LastSeen) -> None:
        """Note a sign of life."""
        self._signs[peer] = sign

    def same_as_before(self, peer: Peer, fingerprint: int) -> bool:
        """Whether the client's subscriptions are those of its last full heartbeat."""
        return fingerprint != 0 and self._fingerprints.get(peer) == fingerprint

    def beat(self, peer: Peer, data: HeartbeatData, user: str = "") -> list[str]:
        """Take a heartbeat; returns the consumer groups whose members or subscriptions changed.

        `user` has signed it; empty without access control.
        """
        self._fingerprints[peer] = data.heartbeat_fingerprint
        if data.producer_data_set:
            self._produce(peer, data, user)
        return [
            consumer.group_name
            for consumer in data.consumer_data_set
            if self._join(peer, data.client_id, consumer)
        ]

    def leave(self, peer: Peer, *, producer: str | None, consumer: str | None) -> bool:
        """Take a client out of a group of each kind; whether a consumer group changed."""
        if producer and (members := self._producers.get(producer)) is not None:
            client_id = members.pop(peer, None)
            if not members:
                del self._producers[producer]
            if client_id is not None:
                _discard(self._producing, peer, producer)
                self._forget_producer(client_id, peer)
        if consumer and (group := self._consumers.get(consumer)) is not None:
            return self._part(consumer, group, peer)
        return False

    def drop(self, peer: Peer) -> list[str]:
        """Forget a connection; returns the consumer groups that changed."""
        self._signs.pop(peer, None)
        self._fingerprints.pop(peer, None)
        self._users.pop(peer, None)
        for group in tuple(self._producing.get(peer, ())):
            self.leave(peer, producer=group, consumer=None)
        mine = tuple(self._consuming.get(peer, ()))
        return [g for g in mine if self.leave(peer, producer=None, consumer=g)]

    def silent(self, now_ms: int) -> list[Peer]:
        """Connections whose clients have been silent for longer than their limits."""
        return [peer for peer, sign in self._signs.items() if sign.expired(now_ms)]

    def members(self, groups: Iterable[str]) -> Iterator[tuple[str, Peer]]:
        """The groups and connections of all members of these groups."""
        for name in groups:
            group = self._consumers.get(name)
            for peer in tuple(group.members) if group else ():
                yield name, peer

    def _produce(self, peer: Peer, data: HeartbeatData, user: str) -> None:
        """Register the producers of a heartbeat.

        A client id that another user has connected stays with that user: replies to requests are
        pushed by client id.
        """
        if user:
            self._users[peer] = user
        for producer in data.producer_data_set:
            self._producers.setdefault(producer.group_name, {})[peer] = data.client_id
            self._producing.setdefault(peer, {})[producer.group_name] = None
        holder = self._by_id.get(data.client_id)
        if holder is None or holder.closed or self.user(holder) == user:
            self._by_id[data.client_id] = peer

    def _join(self, peer: Peer, client_id: str, data: ConsumerData) -> bool:
        group = self._consumers.setdefault(data.group_name, ConsumerGroup())
        known = group.members.get(peer)
        wishes = {wish.topic: wish.sub_string for wish in data.subscription_data_set}
        if known is None or known.wishes != wishes:
            group.is_changed = True
            own_wish = hash(frozenset(without_retry_topics(wishes).items()))
        else:
            wishes, own_wish = known.wishes, known.own_wish
        self._consuming.setdefault(peer, {})[data.group_name] = None
        group.members[peer] = GroupMember(
            client_id, peer, data.message_model, data.consume_type, wishes, data.strategy, own_wish
        )
        news = group.subscribe(data)
        return news or known is None or known.client_id != client_id

    def _forget_producer(self, client_id: str, peer: Peer) -> None:
        """Forget a producer's id, unless it is in other groups or on a newer connection."""
        if peer not in self._producing and self._by_id.get(client_id) is peer:
            del self._by_id[client_id]

    def _part(self, name: str, group: ConsumerGroup, peer: Peer) -> bool:
        if group.members.pop(peer, None) is None:
            return False
        _discard(self._consuming, peer, name)
        group.is_changed = True
        if not group.members:
            del self._consumers[name]
        return True


def _discard(groups: dict[Peer, dict[str, None]], peer: Peer, name: str) -> None:
    del groups[peer][name]
    if not groups[peer]:
        del groups[peer]


def _newer(known: Subscription | None, update: Subscription) -> Subscription:
    """The subscription with the higher version: members switch to a new one at different times."""
    return known if known is not None and known.sub_version > update.sub_version else update


def language_of(peer: Peer) -> Language:
    """The language that a client names; OTHER for an unknown one."""
    return Language(peer.language) if peer.language in set(Language) else Language.OTHER
