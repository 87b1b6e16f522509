"""Cluster: what name servers and brokers say of topics, asked patiently.

A broker that is away, because it starts again for example, is asked until the time is up; its
address is looked up anew each time. Connections are kept for the life of the process: Spark's
workers serve many batches.
"""

import logging
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, TypeVar

from roquet.model.errors import (
    CallError,
    CallRefused,
    ConnectFailed,
    ConnectionLost,
    RemoteProtocolError,
    RoquetError,
    UsageError,
)
from roquet.model.queue import MessageQueue
from roquet.model.route import TopicRoute
from roquet.net.blocking import BlockingChannel
from roquet.net.clock import SYSTEM_CLOCK
from roquet.spark.options import SourceOptions
from roquet.spark.plan import Offsets
from roquet.wire.call import Call, Reply
from roquet.wire.calls.offset import MaxOffset, MinOffset
from roquet.wire.calls.route import GetRoute
from roquet.wire.codes import ResponseCode
from roquet.wire.dialect import loads

log = logging.getLogger(__name__)

R = TypeVar("R", bound=Reply)
T = TypeVar("T")

CALL_TIMEOUT_MS: Final = 10_000
"""For one answer: four mebibytes from a cold disk take longer than the usual three seconds."""

PAUSES_MS: Final = (50, 100, 200, 500, 1000)
"""Between one attempt and the next; the last one again and again."""

_BUSY: Final = frozenset({ResponseCode.SYSTEM_BUSY, ResponseCode.SERVICE_NOT_AVAILABLE})

_channels: dict[str, BlockingChannel] = {}


class DataLost(RoquetError):
    """Messages that a read was to bring are not there any more."""


class Cluster:
    """The cluster that the topics of a read live in."""

    def __init__(
        self,
        settings: SourceOptions,
        addresses: Mapping[str, str] | None = None,
        pause: Callable[[int], object] = lambda ms: time.sleep(ms / 1000),
    ) -> None:
        self.settings = settings
        self._addresses = dict(addresses or {})
        self.pause = pause

    @property
    def addresses(self) -> Mapping[str, str]:
        """The brokers' addresses by name, as far as they are known."""
        return self._addresses

    def route(self, topic: str) -> TopicRoute:
        """Where a topic lives, from the first name server that knows."""
        failure: CallError | None = None
        for address in self.settings.namesrv:
            try:
                reply = _call(address, GetRoute(topic=topic, accept_standard_json_only=True))
            except CallError as error:
                failure = error
            else:
                return self._noted(loads(bytes(reply.body), TopicRoute))
        # A name server that has just started forgets topics for a moment: one that was there is.
        if _is_unknown(failure) and not self._addresses:
            raise UsageError(f"topic {topic!r} is unknown to {self.settings.namesrv}") from failure
        raise ConnectFailed(f"no name server of {self.settings.namesrv} helps: {failure}")

    def ask(self, broker: str, call: Call[R]) -> R:
        """A broker's answer, waited for until the time is up."""
        return self.patiently(lambda: self._ask_once(broker, call), broker)

    def ask_ahead(self, broker: str, call: Call[Any]) -> None:
        """Have a broker begin with what it will be asked next; what fails now is asked then."""
        address = self._addresses.get(broker)
        channel = _channels.get(address) if address else None
        if channel is not None:
            channel.ask_ahead(call)

    def earliest(self) -> Offsets:
        """The offset of each queue's first message."""
        return self._offsets(MinOffset)

    def latest(self) -> Offsets:
        """The offset that each queue's next message will get."""
        return self._offsets(MaxOffset)

    def lost(self, what: str) -> None:
        """Messages are gone: an error, or a warning where the user has said so."""
        if self.settings.fail_on_data_loss:
            advice = "failOnDataLoss=false goes on without what is gone"
            raise DataLost(f"{what}; {advice}")
        log.warning("%s; going on, as failOnDataLoss=false says", what)

    def patiently(self, attempt: Callable[[], T], who: str) -> T:
        """What the attempt gives, made again after failures that may pass, until time is up."""
        pauses = iter(PAUSES_MS)
        pause = PAUSES_MS[0]
        deadline = SYSTEM_CLOCK.monotonic_ms() + self.settings.timeout_ms
        while True:
            try:
                return attempt()
            except CallError as error:
                if not _may_pass(error) or SYSTEM_CLOCK.monotonic_ms() >= deadline:
                    raise
                log.info("%s: %s; trying again", who, error)
            pause = next(pauses, pause)
            self.pause(pause)

    def _offsets(self, kind: type[MaxOffset] | type[MinOffset]) -> Offsets:
        return {
            (topic, queue.broker_name, queue.queue_id): self.ask(
                queue.broker_name, kind(topic=topic, queue_id=queue.queue_id)
            ).offset
            for topic in self.settings.topics
            for queue in self._queues(topic)
        }

    def _queues(self, topic: str) -> Sequence[MessageQueue]:
        return self.patiently(lambda: self.route(topic), "name server").read_queues(topic)

    def _ask_once(self, broker: str, call: Call[R]) -> R:
        if broker not in self._addresses:
            for topic in self.settings.topics:
                self.route(topic)
        address = self._addresses.get(broker)
        if address is None:
            topics = ", ".join(self.settings.topics)
            raise ConnectFailed(f"broker {broker!r} is not in the route of {topics}")
        try:
            return _call(address, call)
        except CallRefused:
            raise
        except CallError:
            del self._addresses[broker]  # it may come back elsewhere
            raise

    def _noted(self, route: TopicRoute) -> TopicRoute:
        for broker in route.broker_datas:
            if address := broker.any_address:
                self._addresses[broker.broker_name] = address
        return route


def _is_unknown(failure: CallError | None) -> bool:
    return isinstance(failure, CallRefused) and failure.code == ResponseCode.TOPIC_NOT_EXIST


def _may_pass(error: CallError) -> bool:
    return not isinstance(error, CallRefused) or error.code in _BUSY


def _call(address: str, call: Call[R]) -> R:
    channel = _channels.get(address)
    if channel is None:
        channel = _channels[address] = BlockingChannel(address)
    try:
        return channel.call(call, CALL_TIMEOUT_MS)
    except CallRefused:
        raise
    except (CallError, RemoteProtocolError) as error:
        del _channels[address]
        channel.close()
        if isinstance(error, RemoteProtocolError):
            raise ConnectionLost(str(error)) from error
        raise
