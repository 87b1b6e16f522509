"""Readiness of a broker: why it cannot do its work now."""

from collections.abc import Iterator

from roquet.broker.broker import Broker
from roquet.model.errors import StoreFull
from roquet.model.flags import Permission


def unready_reasons(broker: Broker) -> list[str]:
    """Why clients should not be sent to this broker now; empty: they may be.

    Anybody may read the reasons, so they name no file and no client.
    """
    return list(_reasons(broker))


def _reasons(broker: Broker) -> Iterator[str]:
    control, role = broker.control, broker.replication.role.current
    config, registration = control.settings.config, control.registration
    refusal = broker.log.store.refusal
    if isinstance(refusal, StoreFull):
        yield "its disk is almost full: it takes no messages"
    elif refusal is not None:
        yield "its store takes no messages: see its log"
    if role.is_fenced:
        yield "it does not know its role: no controller, or no master, has told it"
    if not config.permission & Permission.WRITE:
        yield "it is drained: brokerPermission lets nobody send"
    if not config.permission & Permission.READ:
        yield "it is closed: brokerPermission lets nobody read"
    if config.name_servers and not registration.has_registered:
        yield "it has not told the name servers of itself yet"
    elif config.name_servers and registration.unreachable.issuperset(config.name_servers):
        yield "no name server can be told of it"
