"""Thin clients of a replicated group: producers that never stop, readers that note all they get.

A producer sends to one broker until that refuses, or for ever: masters that were replaced get
messages, too. Each message is sent once, so whatever is acknowledged was acknowledged once. A
reader pulls all queues of one broker, from the first offset on.
"""

import asyncio
from collections.abc import Awaitable, Callable
from random import Random
from typing import Final, TypeVar

from roquet.model.errors import CallError, CallRefused, FieldError
from roquet.model.flags import PullFlag
from roquet.net.channel import Channel
from roquet.testing.clock import VirtualClock
from roquet.wire.call import Call, Reply
from roquet.wire.calls.pull import Pull
from roquet.wire.calls.send import Send
from roquet.wire.codes import ResponseCode
from roquet.wire.records.record import decode_many
from simulation.replicated.history import (
    AcknowledgedOffset,
    ReplicatedHistory,
    SeenMessage,
)
from simulation.replicated.servers import HOSTS
from simulation.servers import PORT

R = TypeVar("R", bound=Reply)

TOPIC: Final = "orders"
QUEUES: Final = 2

CONNECT_MS: Final = 500
SEND_MS: Final = 2_500
PULL_MS: Final = 1_500
"""Timeouts of calls in ms."""

REFUSED_MS: Final = (50, 400)
"""Pause of a producer whose message was refused: the first one, and the longest; each is twice as
long as the one before."""

READ_MS: Final = 350
"""Ms between two pulls of a queue."""

PROBE: Final = "probe"
"""Beginning of the bodies by which a group is tried that should have healed."""


class BrokerCaller:
    """Calls to brokers, over one connection to each."""

    def __init__(self, clock: VirtualClock) -> None:
        self._clock = clock
        self._channels: dict[str, Channel] = {}

    async def call(self, host: str, call: Call[R], timeout_ms: int) -> R:
        """Call the broker on a host. Raises CallError."""
        channel = self._channels.get(host)
        if channel is None or channel.closed:
            channel = await Channel.connect(host, PORT, clock=self._clock, timeout_ms=CONNECT_MS)
            self._channels[host] = channel
        return await channel.call(call, timeout_ms)

    def hang_up(self, host: str) -> None:
        """Make a new connection for the next call: the last one went unanswered."""
        if (channel := self._channels.pop(host, None)) is not None:
            channel.hang_up("it does not answer")


class MasterCaller:
    """Calls one broker until it refuses a call or fails, and the next one after that."""

    def __init__(self, clock: VirtualClock, loyal: str | None = None) -> None:
        """Make a caller; `loyal` is the broker that it always calls."""
        self._is_loyal = loyal is not None
        self._caller = BrokerCaller(clock)
        self.host = loyal or HOSTS[0]
        """The broker that is called next."""

    async def call(self, call: Call[R], timeout_ms: int) -> R:
        """Call the broker. Raises CallError."""
        try:
            return await self._caller.call(self.host, call, timeout_ms)
        except CallError as error:
            if not isinstance(error, CallRefused):
                self._caller.hang_up(self.host)
            if not self._is_loyal:
                self.host = HOSTS[(HOSTS.index(self.host) + 1) % len(HOSTS)]
            raise


async def send_on(send: Callable[[], Awaitable[bool]], pause_ms: Callable[[], int]) -> None:
    """Send one message after the other, forever; after refusals with longer and longer pauses."""
    refused_ms, longest_ms = REFUSED_MS
    while True:
        if await send():
            wait_ms, refused_ms = pause_ms(), REFUSED_MS[0]
        else:
            wait_ms, refused_ms = refused_ms, min(2 * refused_ms, longest_ms)
        await asyncio.sleep(wait_ms / 1_000)


class ReplicatedProducer:
    """Sends messages one after the other."""

    def __init__(
        self,
        name: str,
        loyal: str | None,
        history: ReplicatedHistory,
        clock: VirtualClock,
        pause_ms: Callable[[], int],
    ) -> None:
        """Make a producer; `loyal` is the broker that it always sends to."""
        self._name = name
        self._history = history
        self._clock = clock
        self._pause_ms = pause_ms
        self._caller = MasterCaller(clock, loyal)
        self._count = 0

    async def live(self) -> None:
        """Send, forever."""
        await send_on(lambda: self.send(f"{self._name}.{self._count}"), self._pause_ms)

    async def send(self, body: str) -> bool:
        """Send one message; True if it was acknowledged."""
        self._count += 1
        began_ms, host, queue_id = self._history.now_ms(), self._caller.host, self._count % QUEUES
        call = Send(
            producer_group="producers",
            topic=TOPIC,
            default_topic_queue_nums=QUEUES,
            queue_id=queue_id,
            born_timestamp=self._clock.now_ms(),
            body=body.encode(),
        )
        try:
            reply = await self._caller.call(call, SEND_MS)
        except CallError as error:
            self._history.say(f"{body} at {host}: {type(error).__name__}")
            return False
        if reply.code != ResponseCode.SUCCESS:
            self._history.say(f"{body} at {host}: code {reply.code}")
            return False
        acknowledged = AcknowledgedOffset(
            body=body,
            queue_id=reply.queue_id,
            offset=reply.queue_offset,
            host=host,
            at_ms=self._history.now_ms(),
        )
        self._history.acknowledged_at(acknowledged, began_ms)
        return True


class OffsetReader:
    """Reads the queues of one broker, and notes every message."""

    def __init__(
        self, host: str, history: ReplicatedHistory, clock: VirtualClock, rng: Random
    ) -> None:
        self._host = host
        self._history = history
        self._rng = rng
        self._caller = BrokerCaller(clock)
        self._offsets = [0] * QUEUES

    async def live(self) -> None:
        """Read, forever."""
        while True:
            await asyncio.sleep(self._rng.randrange(READ_MS) / 1_000)
            for queue_id in range(QUEUES):
                await self._read(queue_id)
            await asyncio.sleep(READ_MS / 1_000)

    async def _read(self, queue_id: int) -> None:
        try:
            reply = await self._caller.call(self._host, self._pull(queue_id), PULL_MS)
        except (CallRefused, FieldError):
            return
        except CallError:
            self._caller.hang_up(self._host)
            return
        if reply.code == ResponseCode.SUCCESS:
            self._note(queue_id, reply.body)
        self._offsets[queue_id] = reply.next_begin_offset

    def _note(self, queue_id: int, body: bytes) -> None:
        for record in decode_many(body):
            self._history.saw(
                SeenMessage(
                    body=record.body.decode(),
                    queue_id=queue_id,
                    offset=record.queue_offset,
                    position=record.position + record.size,
                    host=self._host,
                    at_ms=self._history.now_ms(),
                )
            )

    def _pull(self, queue_id: int) -> Pull:
        return Pull(
            consumer_group=f"readers-{self._host[-1]}",
            topic=TOPIC,
            queue_id=queue_id,
            queue_offset=self._offsets[queue_id],
            max_msg_nums=32,
            sys_flag=int(PullFlag.SUBSCRIPTION),
            commit_offset=0,
            suspend_timeout_millis=0,
            subscription="*",
            sub_version=0,
        )
