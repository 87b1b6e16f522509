from importlib import import_module
from inspect import signature
from typing import Any, get_type_hints

import pytest
from tests.broker.conftest import FakePeer
from tests.for_each import for_each

from roquet.broker.broker import Broker, BrokerHandler
from roquet.broker.control import ControlPlane
from roquet.broker.handlers import HANDLERS
from roquet.broker.log.message_log import MessageLog
from roquet.broker.tables.broker_tables import BrokerTables


def handler_name(handler: BrokerHandler) -> str:
    return f"{handler.__module__.rpartition('.')[2]}.{handler.__name__}"


class Echo:
    """A handler that returns what it was made from and called with."""

    def __init__(self, control: ControlPlane, log: MessageLog) -> None:
        self.parts = control, log

    def echo(self, call: str, peer: FakePeer) -> Any:
        return *self.parts, call, peer


class Operation:
    """An operation that handlers share."""

    def __init__(self, tables: BrokerTables) -> None:
        self.tables = tables


class Partless:
    """A handler that needs no part."""

    def echo(self, call: str, peer: FakePeer) -> Any:
        return call, peer


class Nested:
    """A handler with an operation."""

    def __init__(self, operation: Operation, control: ControlPlane) -> None:
        self.tables, self.control = operation.tables, control


async def test_a_handler_gets_the_parts_that_it_names(broker: Broker, peer: FakePeer) -> None:
    assert broker.bind(Echo.echo)("call", peer) == (broker.control, broker.log, "call", peer)


async def test_a_handler_may_need_no_part(broker: Broker, peer: FakePeer) -> None:
    assert broker.bind(Partless.echo)("call", peer) == ("call", peer)


async def test_a_handler_gets_operations_that_are_made_from_the_same_parts(broker: Broker) -> None:
    made = broker.make(Nested)
    assert (made.tables, made.control) == (broker.tables, broker.control)


async def test_every_handler_of_the_broker_can_be_bound(broker: Broker) -> None:
    bound: list[Any] = [broker.bind(handler) for handler in HANDLERS.values()]
    parts = {
        type(getattr(each.__self__, name))
        for each in bound
        for name in each.__self__.__struct_fields__
    }
    assert {MessageLog, BrokerTables, ControlPlane} < parts


def handler_class(handler: BrokerHandler) -> type:
    """The class of a handler's method."""
    kind: type = getattr(import_module(handler.__module__), handler.__qualname__.split(".")[0])
    return kind


PART_TYPES = frozenset(get_type_hints(Broker).values())
IN_ORDER = sorted({handler_class(handler) for handler in HANDLERS.values()}, key=str)


@pytest.mark.parametrize("kind", IN_ORDER, ids=lambda kind: kind.__name__)
def test_a_handler_is_made_from_parts_and_operations_alone(kind: Any) -> None:
    types = get_type_hints(kind)
    names = list(signature(kind).parameters)
    assert not hasattr(kind, "__dict__") or "__dict__" not in vars(kind)
    assert all(is_part_or_operation(types[name]) for name in names)


def is_part_or_operation(kind: type) -> bool:
    """Whether a handler may be made from it: an operation names its parts in the same way."""
    return kind in PART_TYPES or kind.__module__.startswith("roquet.broker.operations.")


@for_each(dict.fromkeys(HANDLERS.values()))
def test_a_request_brings_the_call_and_the_peer_alone(handler: BrokerHandler) -> None:
    types = get_type_hints(handler)
    arguments = [types.get(name) for name in signature(handler).parameters][1:]
    assert len(arguments) == 2
    assert PART_TYPES.isdisjoint(arguments)


async def test_parts_stay_the_same_while_the_broker_runs(broker: Broker) -> None:
    with pytest.raises(AttributeError):
        broker.log = broker.log  # type: ignore[misc]
