from typing import Any

from roquet.broker.operations.connections import language_of
from roquet.wire.codes import Language


def test_a_peer_says_what_it_is_written_in(peer: Any) -> None:
    peer.language = Language.GO
    assert language_of(peer) is Language.GO


def test_an_unknown_language_is_another_one(peer: Any) -> None:
    peer.language = 99
    assert language_of(peer) is Language.OTHER
