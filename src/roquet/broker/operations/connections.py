"""Connections: the language that a client names."""

from roquet.net.router import Peer
from roquet.wire.codes import Language


def language_of(peer: Peer) -> Language:
    """The language of a peer; OTHER for an unknown one."""
    known = set(Language)
    return Language(peer.language) if peer.language in known else Language.OTHER
