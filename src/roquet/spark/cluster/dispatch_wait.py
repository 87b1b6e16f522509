"""Dispatch wait: until a broker's queues show everything that its log holds now.

A message is in a broker's log before it is in its queue. Apache's broker adds it a moment later, or
later than that without a free core; a master under a controller hides it until its replicas have
it. Whoever looks for a message that may have been stored has to wait for both, or misses it.
"""

from contextlib import suppress
from typing import Final

import msgspec

from roquet.model.errors import CallRefused, CallTimeout, RoquetError
from roquet.net.clock import SYSTEM_CLOCK
from roquet.spark.cluster.cluster_client import ClusterClient
from roquet.wire.calls.admin.stats import GetRuntimeInfo
from roquet.wire.calls.bodies import KVTable
from roquet.wire.codes import ResponseCode
from roquet.wire.fastjson.codec import loads

DISPATCH_POLL_MS: Final = 50
"""Pause between two looks at whether queues cover their log."""


class LogProgress(msgspec.Struct, frozen=True):
    """Positions in a broker's log."""

    end: int
    shown: int
    """Everything in front of it is in its queue and shown to readers, as far as the broker says."""
    is_exact: bool
    """Whether the broker says what it hides. Apache's does not, under a controller."""


def wait_for_dispatch(cluster: ClusterClient, broker: str) -> bool:
    """Wait until a broker's queues show everything that its log holds now.

    False when the broker may hide more than it says. Raises CallTimeout after the read's timeout:
    replicas are behind, or the queues are. CallRefused while the broker does not say how far they
    are: it is busy for as long, or the user lacks a permission.
    """
    deadline_ms = SYSTEM_CLOCK.monotonic_ms() + cluster.settings.timeout_ms
    while True:
        master = _master(cluster, broker)
        progress = first = _progress(cluster, broker)
        while progress.shown < min(first.end, progress.end):  # a new master's log may be shorter
            if SYSTEM_CLOCK.monotonic_ms() >= deadline_ms:
                hidden = progress.end - progress.shown
                raise CallTimeout(
                    f"broker {broker!r} hides the last {hidden} bytes of its log: wait until its "
                    "replicas have caught up or have left the set"
                )
            cluster.pause(DISPATCH_POLL_MS)
            progress = _progress(cluster, broker)
        if _master(cluster, broker) == master:
            return progress.is_exact


def _master(cluster: ClusterClient, broker: str) -> str | None:
    with suppress(RoquetError):  # without an answer the known address stays
        cluster.look_up()
    return cluster.addresses.get(broker)


def _progress(cluster: ClusterClient, broker: str) -> LogProgress:
    try:
        reply = cluster.ask(broker, GetRuntimeInfo())
    except CallRefused as error:
        if error.code == ResponseCode.REQUEST_CODE_NOT_SUPPORTED:
            return LogProgress(0, 0, False)  # the queues' own ends have to do
        if error.code == ResponseCode.NO_PERMISSION:
            raise CallRefused(
                error.code,
                f"broker {broker!r} does not tell this user how much of its log readers see, and "
                "rows might be stored twice: allow the user to Get the broker's cluster, by "
                f"`roquet acl policy create USER -r Cluster:NAME -a Get` ({error.remark})",
            ) from error
        raise
    table = loads(bytes(reply.body), KVTable).table
    end = int(table.get("commitLogMaxOffset", 0))
    confirmed = table.get("commitLogConfirmedOffset")
    if confirmed is None:
        return LogProgress(end, end - int(table.get("dispatchBehindBytes", 0)), False)
    # Queues of such a master are never behind its log: what is behind is its key index.
    return LogProgress(end, int(confirmed), True)
