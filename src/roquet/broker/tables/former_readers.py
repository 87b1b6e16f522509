"""Former readers: connections whose offsets are of a deleted topic (never saved).

A client that was reading when its topic was deleted goes on at the offset that it had reached, also
when the topic is made anew: genuine clients know no topic ids. Each of its queues is told once to
begin at the beginning; until then, or until it asks where its group is, it may note no progress.
"""

from collections.abc import Iterable

from roquet.net.router import Peer


class FormerReaders:
    """By deleted topic and connection: the queues that have been told since."""

    def __init__(self) -> None:
        self.pending: dict[str, dict[Peer, set[int]]] = {}
        """Mostly empty, so hot paths look here first."""

    def add(self, topic: str, peers: Iterable[Peer]) -> None:
        """A topic is deleted while these may be reading it."""
        if found := {peer: set[int]() for peer in peers}:
            self.pending[topic] = found

    def is_late(self, topic: str, queue_id: int, peer: Peer) -> bool:
        """Whether offsets that come on a connection are of the deleted topic."""
        told = self.pending.get(topic, {}).get(peer)
        return told is not None and queue_id not in told

    def tell(self, topic: str, queue_id: int, peer: Peer) -> bool:
        """Whether a reader has to be told to begin anew; that it is told, or knows, is noted."""
        if not self.is_late(topic, queue_id, peer):
            return False
        self.pending[topic][peer].add(queue_id)
        return True

    def forget(self, peer: Peer) -> None:
        """A connection has ended."""
        for topic in [topic for topic, peers in self.pending.items() if peer in peers]:
            del self.pending[topic][peer]
            if not self.pending[topic]:
                del self.pending[topic]
