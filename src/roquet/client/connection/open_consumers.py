"""Members: the consumers of this process, of which no two may be the same member of a group.

Two with one client id would be one member to the brokers: each would think that it has both
shares, and each would be told of the other's.
"""

import os
from collections.abc import Sequence
from typing import Final, Protocol
from weakref import WeakValueDictionary

from roquet.model.errors import UsageError


class OpenConsumer(Protocol):
    """A consumer."""

    group: str

    @property
    def client_id(self) -> str:
        """What brokers know it by."""

    @property
    def name_servers(self) -> Sequence[str]:
        """Which cluster it belongs to."""

    @property
    def is_open(self) -> bool:
        """Whether it lives."""


_Key = tuple[int, tuple[str, ...], str, str]

_open: Final[WeakValueDictionary[_Key, OpenConsumer]] = WeakValueDictionary()


def register(member: OpenConsumer) -> None:
    """A consumer starts; UsageError when another one lives under its name."""
    other = _open.get(_key(member))
    if other is not None and other is not member and other.is_open:
        raise UsageError(
            f"group {member.group} has a consumer named {member.client_id} in this process: "
            "give each an `instance` of its own, or none"
        )
    _open[_key(member)] = member


def unregister(member: OpenConsumer) -> None:
    """A consumer has ended."""
    if _open.get(_key(member)) is member:
        del _open[_key(member)]


def _key(member: OpenConsumer) -> _Key:
    # A fork inherits the table, but not the consumers.
    return os.getpid(), tuple(member.name_servers), member.client_id, member.group
