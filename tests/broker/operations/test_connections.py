from tests.broker.conftest import FakePeer

from roquet.broker.operations.connections import language_of
from roquet.wire.codes import Language


def test_a_peer_says_what_it_is_written_in(peer: FakePeer) -> None:
    peer.language = Language.GO
    assert language_of(peer) is Language.GO


def test_an_unknown_language_is_another_one(peer: FakePeer) -> None:
    peer.language = 99
    assert language_of(peer) is Language.OTHER
