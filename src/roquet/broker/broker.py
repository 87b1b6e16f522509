"""Broker: the parts of one running broker, and handlers bound to the parts that they name."""

from collections.abc import Callable, Mapping
from functools import lru_cache, partial
from inspect import signature
from typing import Any, TypeVar, get_type_hints

import msgspec

from roquet.broker.access.access_control import AccessControl
from roquet.broker.control import ControlPlane
from roquet.broker.coordination import GroupCoordination
from roquet.broker.delivery import DeliveryServices
from roquet.broker.log.message_log import MessageLog
from roquet.broker.replication.replication import Replication
from roquet.broker.tables.broker_tables import BrokerTables
from roquet.net.router import HandlerReply, Peer

R = TypeVar("R", bound=HandlerReply)

BrokerHandler = Callable[..., HandlerReply]
"""A handler: the parts that it needs, by their types, then the call and the peer."""


class Broker(msgspec.Struct, frozen=True, kw_only=True):
    """The parts of one running broker."""

    log: MessageLog
    delivery: DeliveryServices
    tables: BrokerTables
    coordination: GroupCoordination
    control: ControlPlane
    replication: Replication
    access: AccessControl

    def bind(self, handler: Callable[..., R]) -> Callable[[Any, Peer], R]:
        """The handler with its parts, as the router calls it.

        Done once for each handler, at registration: a request does not pay for it.
        """
        parts = self._by_type()
        return partial(
            handler, *(parts[kind] for kind in _parameter_types(handler) if kind in parts)
        )

    def _by_type(self) -> Mapping[type, msgspec.Struct]:
        parts = (getattr(self, name) for name in self.__struct_fields__)
        return {type(part): part for part in parts}


@lru_cache(maxsize=512)
def _parameter_types(handler: BrokerHandler) -> tuple[Any, ...]:
    """Types of a handler's parameters, in order: a process may run many brokers, one by one."""
    types = get_type_hints(handler)
    return tuple(types.get(name) for name in signature(handler).parameters)
