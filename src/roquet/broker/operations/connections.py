"""Connections: what a connected client says of itself."""

from roquet.net.router import Peer
from roquet.wire.codes import Language


def language_of(peer: Peer) -> Language:
    """What a peer is written in, as far as it is known here."""
    known = set(Language)
    return Language(peer.language) if peer.language in known else Language.OTHER
