"""FormerReaders: clients whose offsets may belong to a deleted topic (in memory only).

A client that was reading when its topic was deleted goes on at the offset that it had reached, even
if the topic is created again: genuine clients know no topic ids. For each queue it is sent to the
first offset once; until then, or until it queries its group's offset, it may not commit.

A client that reconnects has another connection and names its group alone. So a group's queues count
as read by former readers until one of its members was sent back or has queried.
"""

from collections.abc import Iterable
from typing import Final

from roquet.net.router import Peer

TOPICS_MAX: Final = 1_000
"""Deleted topics whose readers are remembered, the latest ones: readers pull within seconds."""


class _Former:
    """Readers of one deleted topic, and the queues for which each was sent back."""

    def __init__(self, peers: Iterable[Peer], groups: Iterable[str]) -> None:
        self.peers: dict[Peer, set[int]] = {peer: set() for peer in peers}
        self.groups: dict[str, set[int]] = {group: set() for group in groups}


class FormerReaders:
    """Connections and groups, by deleted topic."""

    def __init__(self) -> None:
        self.pending: dict[str, _Former] = {}
        """By topic; mostly empty, so hot paths check it first."""

    def add(self, topic: str, peers: Iterable[Peer], groups: Iterable[str]) -> None:
        """Remember connections and groups that may be reading a topic that is deleted."""
        self.pending.pop(topic, None)
        former = _Former(peers, groups)
        if former.peers or former.groups:
            self.pending[topic] = former
            if len(self.pending) > TOPICS_MAX:
                del self.pending[next(iter(self.pending))]

    def is_late(self, topic: str, group: str, queue_id: int, peer: Peer) -> bool:
        """Whether offsets that a group sends on a connection belong to the deleted topic."""
        former = self.pending.get(topic)
        if former is None:
            return False
        queues = former.peers.get(peer)
        if queues is None:
            queues = former.groups.get(group)
        return queues is not None and queue_id not in queues

    def tell(self, topic: str, group: str, queue_id: int, peer: Peer) -> bool:
        """Whether to send a reader back to the first offset; afterwards it counts as sent back."""
        if not self.is_late(topic, group, queue_id, peer):
            return False
        former = self.pending[topic]
        for queues in (former.peers.get(peer), former.groups.get(group)):
            if queues is not None:
                queues.add(queue_id)
        return True

    def forget(self, peer: Peer) -> None:
        """Forget a closed connection."""
        for topic in [topic for topic, former in self.pending.items() if peer in former.peers]:
            former = self.pending[topic]
            del former.peers[peer]
            if not former.peers and not former.groups:
                del self.pending[topic]
