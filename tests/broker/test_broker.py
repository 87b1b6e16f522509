from typing import Any

import pytest

from roquet.broker.broker import Broker
from roquet.broker.control import ControlPlane
from roquet.broker.handlers import HANDLERS
from roquet.broker.log.message_log import MessageLog
from roquet.broker.tables.broker_tables import BrokerTables


async def test_a_handler_gets_the_parts_that_it_names(broker: Broker, peer: Any) -> None:
    def handler(control: ControlPlane, log: MessageLog, call: str, peer: Any) -> Any:
        return control, log, call, peer

    assert broker.bind(handler)("call", peer) == (broker.control, broker.log, "call", peer)


async def test_a_handler_may_need_no_part(broker: Broker, peer: Any) -> None:
    def handler(call: str, peer: Any) -> Any:
        return call, peer

    assert broker.bind(handler)("call", peer) == ("call", peer)


async def test_every_handler_of_the_broker_can_be_bound(broker: Broker) -> None:
    bound: list[Any] = [broker.bind(handler) for handler in HANDLERS.values()]
    parts = {type(part) for handler in bound for part in handler.args}
    assert {MessageLog, BrokerTables, ControlPlane} < parts


async def test_parts_stay_the_same_while_the_broker_runs(broker: Broker) -> None:
    with pytest.raises(AttributeError):
        broker.log = broker.log  # type: ignore[misc]
