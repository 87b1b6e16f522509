"""Former readers: whose offsets may be of a deleted topic (never saved).

A client that was reading when its topic was deleted goes on at the offset that it had reached, also
when the topic is made anew: genuine clients know no topic ids. Each of its queues is told once to
begin at the beginning; until then, or until it asks where its group is, it may note no progress.

A client that reconnects is another connection and names its group alone. So the group's queues
count as read by former readers until one of its members was told, or has asked.
"""

from collections.abc import Iterable
from typing import Final

from roquet.net.router import Peer

TOPICS_MAX: Final = 1_000
"""Deleted topics whose readers are remembered, the newest ones: a pull follows within seconds."""


class _Former:
    """Readers of one deleted topic, and the queues that each has been told since."""

    def __init__(self, peers: Iterable[Peer], groups: Iterable[str]) -> None:
        self.peers: dict[Peer, set[int]] = {peer: set() for peer in peers}
        self.groups: dict[str, set[int]] = {group: set() for group in groups}


class FormerReaders:
    """Connections and groups, by deleted topic."""

    def __init__(self) -> None:
        self.pending: dict[str, _Former] = {}
        """Mostly empty, so hot paths look here first."""

    def add(self, topic: str, peers: Iterable[Peer], groups: Iterable[str]) -> None:
        """A topic is deleted while these may be reading it."""
        self.pending.pop(topic, None)
        found = _Former(peers, groups)
        if found.peers or found.groups:
            self.pending[topic] = found
            if len(self.pending) > TOPICS_MAX:
                del self.pending[next(iter(self.pending))]

    def is_late(self, topic: str, group: str, queue_id: int, peer: Peer) -> bool:
        """Whether offsets of a group that come on a connection are of the deleted topic."""
        former = self.pending.get(topic)
        if former is None:
            return False
        told = former.peers.get(peer)
        if told is None:
            told = former.groups.get(group)
        return told is not None and queue_id not in told

    def tell(self, topic: str, group: str, queue_id: int, peer: Peer) -> bool:
        """Whether a reader has to be told to begin anew; that it is told, or knows, is noted."""
        if not self.is_late(topic, group, queue_id, peer):
            return False
        former = self.pending[topic]
        for told in (former.peers.get(peer), former.groups.get(group)):
            if told is not None:
                told.add(queue_id)
        return True

    def forget(self, peer: Peer) -> None:
        """A connection has ended."""
        for topic in [topic for topic, former in self.pending.items() if peer in former.peers]:
            former = self.pending[topic]
            del former.peers[peer]
            if not former.peers and not former.groups:
                del self.pending[topic]
