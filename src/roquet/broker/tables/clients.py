"""Live producers and consumers (never saved): who is connected, and what each group listens to."""

from collections.abc import Iterable, Iterator, Sequence

import msgspec

from roquet.model.subscription import (
    ConsumerData,
    ConsumeType,
    HeartbeatData,
    MessageModel,
    Subscription,
)
from roquet.net.router import Peer
from roquet.rules.liveness import Sign


class Member(msgspec.Struct):
    """One client of a group, on one connection."""

    client_id: str
    peer: Peer


class ConsumerGroup:
    """The members of a consumer group and what they listen to."""

    def __init__(self) -> None:
        self.members: dict[Peer, Member] = {}
        self.subscriptions: dict[str, Subscription] = {}
        self.consume_type = ConsumeType.CONSUME_PASSIVELY
        self.message_model = MessageModel.CLUSTERING

    @property
    def client_ids(self) -> list[str]:
        """The members' ids, each once: a client that reconnects may be on two connections."""
        return sorted({member.client_id for member in self.members.values()})

    def subscribe(self, data: ConsumerData) -> bool:
        """Take what a member listens to; whether that is news."""
        self.consume_type, self.message_model = data.consume_type, data.message_model
        wanted = {subscription.topic: subscription for subscription in data.subscription_data_set}
        before = self.subscriptions
        self.subscriptions = {
            topic: _newer(before.get(topic), subscription) for topic, subscription in wanted.items()
        }
        return {t: s.sub_string for t, s in before.items()} != {
            t: s.sub_string for t, s in self.subscriptions.items()
        }


class Clients:
    """Who is connected: groups by name, their members by connection."""

    def __init__(self) -> None:
        self._producers: dict[str, dict[Peer, str]] = {}
        self._consumers: dict[str, ConsumerGroup] = {}
        self._signs: dict[Peer, Sign] = {}
        self._fingerprints: dict[Peer, int] = {}

    def __contains__(self, peer: Peer) -> bool:
        return peer in self._signs

    def consumers(self, group: str) -> ConsumerGroup | None:
        """A consumer group that has members."""
        return self._consumers.get(group)

    def producers(self, group: str) -> Sequence[Peer]:
        """The connections of a producer group."""
        return list(self._producers.get(group, ()))

    def seen(self, peer: Peer, sign: Sign) -> None:
        """Note a sign of life."""
        self._signs[peer] = sign

    def same_as_before(self, peer: Peer, fingerprint: int) -> bool:
        """Whether the client listens to what it said in its last full heartbeat."""
        return fingerprint != 0 and self._fingerprints.get(peer) == fingerprint

    def beat(self, peer: Peer, data: HeartbeatData) -> list[str]:
        """Take a heartbeat; gives the groups whose members or subscriptions changed."""
        self._fingerprints[peer] = data.heartbeat_fingerprint
        for producer in data.producer_data_set:
            self._producers.setdefault(producer.group_name, {})[peer] = data.client_id
        return [
            consumer.group_name
            for consumer in data.consumer_data_set
            if self._join(peer, data.client_id, consumer)
        ]

    def leave(self, peer: Peer, *, producer: str | None, consumer: str | None) -> bool:
        """Take a client out of a group of each kind; whether a consumer group changed."""
        if producer and (members := self._producers.get(producer)) is not None:
            members.pop(peer, None)
            if not members:
                del self._producers[producer]
        if consumer and (group := self._consumers.get(consumer)) is not None:
            return self._part(consumer, group, peer)
        return False

    def drop(self, peer: Peer) -> list[str]:
        """Forget a connection; gives the consumer groups that changed."""
        self._signs.pop(peer, None)
        self._fingerprints.pop(peer, None)
        for group in [g for g, members in self._producers.items() if peer in members]:
            self.leave(peer, producer=group, consumer=None)
        mine = [g for g, group in self._consumers.items() if peer in group.members]
        return [g for g in mine if self.leave(peer, producer=None, consumer=g)]

    def silent(self, now_ms: int) -> list[Peer]:
        """The connections whose clients have been silent for too long."""
        return [peer for peer, sign in self._signs.items() if sign.expired(now_ms)]

    def members(self, groups: Iterable[str]) -> Iterator[tuple[str, Peer]]:
        """Everyone who has to hear of changed groups."""
        for name in groups:
            group = self._consumers.get(name)
            for peer in tuple(group.members) if group else ():
                yield name, peer

    def _join(self, peer: Peer, client_id: str, data: ConsumerData) -> bool:
        group = self._consumers.setdefault(data.group_name, ConsumerGroup())
        known = group.members.get(peer)
        group.members[peer] = Member(client_id, peer)
        news = group.subscribe(data)
        return news or known is None or known.client_id != client_id

    def _part(self, name: str, group: ConsumerGroup, peer: Peer) -> bool:
        if group.members.pop(peer, None) is None:
            return False
        if not group.members:
            del self._consumers[name]
        return True


def _newer(known: Subscription | None, given: Subscription) -> Subscription:
    """Members learn of a new expression one after another: the newest one counts."""
    return known if known is not None and known.sub_version > given.sub_version else given
