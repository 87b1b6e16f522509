"""Handlers of the broker by call type: packages by purpose, one module per kind of request.

Each public method of a handler serves the calls that its first argument may be.
"""

from collections.abc import Iterable, Mapping
from inspect import isfunction
from types import MappingProxyType
from typing import Any, Final, get_args, get_type_hints

from roquet.broker.broker import BrokerComponent, BrokerHandler
from roquet.broker.handlers.admin.access import AccessHandler
from roquet.broker.handlers.admin.cleaning import CleaningHandler
from roquet.broker.handlers.admin.client_forwarding import ClientForwardingHandler
from roquet.broker.handlers.admin.group import GroupHandler
from roquet.broker.handlers.admin.inspection import InspectionHandler
from roquet.broker.handlers.admin.replication import ReplicationHandler
from roquet.broker.handlers.admin.reset import ResetHandler
from roquet.broker.handlers.admin.runtime import RuntimeHandler
from roquet.broker.handlers.admin.settings import SettingsHandler
from roquet.broker.handlers.admin.stats import StatsHandler
from roquet.broker.handlers.admin.topic import TopicHandler
from roquet.broker.handlers.groups.assignment import AssignmentHandler
from roquet.broker.handlers.groups.heartbeat import HeartbeatHandler
from roquet.broker.handlers.groups.lock import LockHandler
from roquet.broker.handlers.groups.offset import OffsetHandler
from roquet.broker.handlers.messages.ack import AckHandler
from roquet.broker.handlers.messages.pop import PopHandler
from roquet.broker.handlers.messages.pull import PullHandler
from roquet.broker.handlers.messages.query import QueryHandler
from roquet.broker.handlers.messages.reply import ReplyHandler
from roquet.broker.handlers.messages.send import SendHandler
from roquet.broker.handlers.messages.send_back import SendBackHandler
from roquet.broker.handlers.messages.timer import TimerHandler
from roquet.broker.handlers.messages.transaction import TransactionHandler
from roquet.wire.call import Call
from roquet.wire.calls.admin.offset_reset import GetClientStatus, ResetClientOffset
from roquet.wire.calls.heartbeat import ConsumersChanged
from roquet.wire.calls.reply import PushReply
from roquet.wire.calls.transaction import CheckTransactionState

CLASSES: Final[tuple[type[BrokerComponent], ...]] = (
    SendHandler,
    SendBackHandler,
    ReplyHandler,
    PopHandler,
    AckHandler,
    PullHandler,
    OffsetHandler,
    HeartbeatHandler,
    LockHandler,
    AssignmentHandler,
    ClientForwardingHandler,
    GroupHandler,
    InspectionHandler,
    StatsHandler,
    ReplicationHandler,
    RuntimeHandler,
    TimerHandler,
    QueryHandler,
    TransactionHandler,
    TopicHandler,
    SettingsHandler,
    ResetHandler,
    CleaningHandler,
    AccessHandler,
)


def _by_call(classes: Iterable[type[BrokerComponent]]) -> dict[type[Call[Any]], BrokerHandler]:
    """The methods of these handlers, by each type of call that they serve."""
    methods = [method for kind in classes for method in vars(kind).values() if isfunction(method)]
    served: dict[type[Call[Any]], BrokerHandler] = {}
    for method in methods:
        if not method.__name__.startswith("_"):
            call = next(iter(get_type_hints(method).values()))
            calls = get_args(call) or (call,)
            assert served.keys().isdisjoint(calls), f"{method.__qualname__} is not the only one"
            served |= dict.fromkeys(calls, method)
    return served


HANDLERS: Final[Mapping[type[Call[Any]], BrokerHandler]] = MappingProxyType(_by_call(CLASSES))
"""The handler of each call."""

NOT_SERVED: Final[frozenset[type[Call[Any]]]] = frozenset(
    {ConsumersChanged, PushReply, CheckTransactionState, ResetClientOffset, GetClientStatus}
)
"""Calls that clients serve: brokers send them."""
