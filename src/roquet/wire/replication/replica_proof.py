"""Replica proof: a replica shows its master that it knows a secret of the group's brokers.

    master → replica    │ "ROQUETHA" 8 │ nonce 32 │    challenge, before all other bytes
    replica → master    │ "ROQUETPR" 8 │ proof 32 │    HMAC-SHA256 of the challenge and the group

What follows is the stream, in either form. The protocol of Apache RocketMQ has no such frames: its
masters send nothing before a replica does. A nonce is that of one connection, so that a recorded
proof proves nothing in another.
"""

import hmac
from typing import Final

from roquet.wire.signing import Credentials

CHALLENGE: Final = b"ROQUETHA"
"""First bytes of a challenge: no epoch stream begins like that, nor a classic one of less than
5 EiB."""

PROOF: Final = b"ROQUETPR"
"""First bytes of a proof."""

NONCE_SIZE: Final = 32

FRAME_SIZE: Final = len(CHALLENGE) + NONCE_SIZE
"""Bytes of either frame."""


def encode_challenge(nonce: bytes) -> bytes:
    """Encode the first frame of a master that asks for a proof."""
    assert len(nonce) == NONCE_SIZE, "frames have one size"
    return CHALLENGE + nonce


def encode_proof(credentials: Credentials, challenge: bytes, cluster: str, name: str) -> bytes:
    """Encode a replica's answer to a challenge, for the broker of a name in a cluster."""
    group = f"{credentials.access_key}\n{cluster}\n{name}".encode()
    secret = credentials.secret_key.encode()
    return PROOF + hmac.digest(secret, PROOF + challenge + group, "sha256")


def is_proof(frame: bytes, expected: bytes) -> bool:
    """Whether a frame is the expected one; takes as long for each that is not."""
    return hmac.compare_digest(frame, expected)
