"""Broker: the parts of one running broker, and handlers bound to the parts that they name."""

from collections.abc import Callable, Mapping
from functools import lru_cache
from inspect import signature
from typing import Any, TypeVar, cast, get_type_hints

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
T = TypeVar("T")

BrokerHandler = Callable[..., HandlerReply]
"""A method of a handler's class, which takes the call and the peer."""


class BrokerComponent(msgspec.Struct, frozen=True):
    """A handler or an operation: its fields name the parts and operations that it uses."""


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
        """The method on an object of its class, as the router calls it.

        Done once for each handler, at registration: a request does not pay for it.
        """
        bound: Callable[[Any, Peer], R] = handler.__get__(self.make(_class_of(handler)))
        return bound

    def make(self, kind: type[T]) -> T:
        """An object with the parts that its fields, or its `__init__`, name by their types.

        An operation among them is made in the same way.
        """
        parts, constructor = self._by_type(), cast("Any", kind)
        types = _parameter_types(constructor)
        made: T = constructor(*(parts.get(part) or self.make(part) for part in types))
        return made

    def _by_type(self) -> Mapping[type, msgspec.Struct]:
        parts = (getattr(self, name) for name in self.__struct_fields__)
        return {type(part): part for part in parts}


def _class_of(method: Callable[..., Any]) -> Any:
    """The class in whose body a method of a module's class was defined."""
    return method.__globals__[method.__qualname__.rpartition(".")[0]]


@lru_cache(maxsize=512)
def _parameter_types(kind: Any) -> tuple[Any, ...]:
    """Types of what a class is made from, in order: a process may run many brokers, one by one."""
    if issubclass(kind, BrokerComponent):
        types = get_type_hints(kind)
        return tuple(types[name] for name in kind.__struct_fields__)
    if kind.__init__ is object.__init__:
        return ()
    types = get_type_hints(kind.__init__)
    return tuple(types[name] for name in signature(kind).parameters)
