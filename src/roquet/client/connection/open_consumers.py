"""Open consumers of this process, of which no two may have the same client id and group.

Brokers would take two consumers with one client id for one member: each of them would read the same
share of the queues, and notices for one would reach the other.
"""

import os
from collections.abc import Sequence
from typing import Final, NamedTuple, Protocol
from weakref import WeakValueDictionary

from roquet.model.errors import UsageError


class OpenConsumer(Protocol):
    """The properties of a consumer that identify it."""

    group: str

    @property
    def client_id(self) -> str:
        """The id by which brokers know this member."""

    @property
    def name_servers(self) -> Sequence[str]:
        """The name servers' addresses, which identify the cluster."""

    @property
    def is_open(self) -> bool:
        """Whether the consumer has started and not ended."""


class _Key(NamedTuple):
    pid: int
    """A forked child inherits the table, but not the consumers."""
    name_servers: tuple[str, ...]
    client_id: str
    group: str


registered: Final[WeakValueDictionary[_Key, OpenConsumer]] = WeakValueDictionary()
"""Open consumers by key. A simulation replaces it: its clients are not those of this process."""


def register(member: OpenConsumer) -> None:
    """Add a consumer; UsageError when an open one has the same client id and group."""
    other = registered.get(_key(member))
    if other is not None and other is not member and other.is_open:
        raise UsageError(
            f"group {member.group} has a consumer named {member.client_id} in this process: "
            "give each an `instance` of its own, or none"
        )
    registered[_key(member)] = member


def unregister(member: OpenConsumer) -> None:
    """Remove a consumer that has ended."""
    if registered.get(_key(member)) is member:
        del registered[_key(member)]


def _key(member: OpenConsumer) -> _Key:
    return _Key(os.getpid(), tuple(member.name_servers), member.client_id, member.group)
