import pytest

from roquet.wire.replication.replica_proof import (
    FRAME_SIZE,
    encode_challenge,
    encode_proof,
    is_proof,
)
from roquet.wire.signing import Credentials

NONCE = bytes(range(32))
CHALLENGE = encode_challenge(NONCE)


def proof(
    challenge: bytes = CHALLENGE,
    secret: str = "s3cret",
    key: str = "inner",
    cluster: str = "c",
    name: str = "g",
) -> bytes:
    return encode_proof(Credentials(access_key=key, secret_key=secret), challenge, cluster, name)


def test_both_frames_have_one_size_and_say_what_they_are() -> None:
    assert encode_challenge(NONCE) == b"ROQUETHA" + NONCE
    assert proof().hex() == (
        "524f515545545052"  # ROQUETPR
        "d81dbd8d3852c10e7e7df2cdd05d464d6abbe5be18729ff8ca6b0884719218ce"
    )
    assert len(CHALLENGE) == len(proof()) == FRAME_SIZE


@pytest.mark.parametrize(
    "other",
    [
        proof(encode_challenge(bytes(32))),
        proof(secret="s3cre"),
        proof(key="other"),
        proof(cluster="d"),
        proof(name="h"),
        b"",
    ],
)
def test_a_proof_is_of_one_connection_one_group_and_one_secret(other: bytes) -> None:
    assert is_proof(proof(), proof())
    assert not is_proof(other, proof())
