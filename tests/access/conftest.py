"""A guard over some users, and requests that they sign."""

from typing import Any, Final, cast

from roquet.model.access import AccessTables, PolicyType, User, UserStatus, UserType
from roquet.net.router import Peer
from roquet.rules.access.changes import change_acl, policy_entry
from roquet.wire.call import Call
from roquet.wire.codes import VERSION
from roquet.wire.command import JSON, Command, decode
from roquet.wire.fields import encode_call
from roquet.wire.signing import Credentials, Signer


class KnownPeer:
    is_full = False

    def __init__(self, address: str) -> None:
        self.address = address


SECRETS = {"root": "rootsecret", "alice": "alicesecret", "bob": "bobsecret", "off": "offsecret"}


def _tables() -> AccessTables:
    users = {
        "root": User(name="root", password=SECRETS["root"], user_type=UserType.SUPER),
        "alice": User(name="alice", password=SECRETS["alice"]),
        "bob": User(name="bob", password=SECRETS["bob"]),
        "off": User(name="off", password=SECRETS["off"], status=UserStatus.DISABLE),
    }
    entries = [
        policy_entry("Topic:orders", ["Pub"], None, "Allow"),
        policy_entry("Topic:local", ["Pub"], ["127.0.0.0/8"], "Allow"),
    ]
    return change_acl(AccessTables(users=users), "alice", [(PolicyType.CUSTOM, entries)])


TABLES: Final = _tables()


def peer_at(address: str) -> Peer:
    return cast("Peer", KnownPeer(address))


PEER: Final = peer_at("127.0.0.1:5000")


def request_of(
    call: Call[Any],
    by: str | None = None,
    secret: str | None = None,
    *,
    oneway: bool = False,
    serialize_type: int = JSON,
    version: int = VERSION,
) -> Command:
    """A call as a server gets it: `request_of(call, "alice", "…")`; without `by` unsigned."""
    options: dict[str, Any] = {
        "oneway": oneway,
        "serialize_type": serialize_type,
        "version": version,
    }
    if by is None:
        frame = encode_call(call, opaque=7, **options)
    else:
        secret = SECRETS.get(by, "guessed") if secret is None else secret
        signer = Signer(Credentials(access_key=by, secret_key=secret))
        frame = signer.encode_call(call, opaque=7, **options)
    return decode(frame[4:])
