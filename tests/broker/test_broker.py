from inspect import signature
from typing import Any, get_type_hints

import pytest
from tests.broker.conftest import FakePeer

from roquet.broker.broker import Broker, BrokerHandler
from roquet.broker.control import ControlPlane
from roquet.broker.handlers import HANDLERS
from roquet.broker.log.message_log import MessageLog
from roquet.broker.tables.broker_tables import BrokerTables


def handler_name(handler: BrokerHandler) -> str:
    return f"{handler.__module__.rpartition('.')[2]}.{handler.__name__}"


async def test_a_handler_gets_the_parts_that_it_names(broker: Broker, peer: FakePeer) -> None:
    def handler(control: ControlPlane, log: MessageLog, call: str, peer: FakePeer) -> Any:
        return control, log, call, peer

    assert broker.bind(handler)("call", peer) == (broker.control, broker.log, "call", peer)


async def test_a_handler_may_need_no_part(broker: Broker, peer: FakePeer) -> None:
    def handler(call: str, peer: FakePeer) -> Any:
        return call, peer

    assert broker.bind(handler)("call", peer) == ("call", peer)


async def test_every_handler_of_the_broker_can_be_bound(broker: Broker) -> None:
    bound: list[Any] = [broker.bind(handler) for handler in HANDLERS.values()]
    parts = {type(part) for handler in bound for part in handler.args}
    assert {MessageLog, BrokerTables, ControlPlane} < parts


PART_TYPES = frozenset(get_type_hints(Broker).values())
IN_ORDER: list[BrokerHandler] = sorted(set(HANDLERS.values()), key=handler_name)


@pytest.mark.parametrize("handler", IN_ORDER, ids=handler_name)
def test_a_handler_names_its_parts_before_the_call_and_the_peer(handler: BrokerHandler) -> None:
    types = get_type_hints(handler)
    parameters = [types.get(name) for name in signature(handler).parameters]
    parts, others = parameters[:-2], parameters[-2:]
    assert [part for part in parts if part not in PART_TYPES] == [], "bind passes parts by position"
    assert PART_TYPES.isdisjoint(others), "the last two are the call and the peer"


async def test_parts_stay_the_same_while_the_broker_runs(broker: Broker) -> None:
    with pytest.raises(AttributeError):
        broker.log = broker.log  # type: ignore[misc]
