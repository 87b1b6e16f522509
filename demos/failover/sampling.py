"""Sampling: each broker's role, epoch and confirmed messages, several times a second.

    907  GetHaStatus   is it a master, who is in sync
    1007 GetEpochs     latest epoch of its log
    202  GetTopicStats confirmed messages: ends of the queues that consumers see
    11   Pull          refused as busy by whoever takes no messages

Brokers are asked past their proxies, each by a task of its own: one that hangs delays nobody.
"""

import asyncio
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Final

from demos.failover.timeline import BrokerSample, state_of
from roquet.model.errors import CallError, CallRefused, FieldError
from roquet.model.flags import PullFlag
from roquet.net.pool import ChannelPool
from roquet.wire.call import Call, Reply
from roquet.wire.calls.admin.stats import (
    BrokerEpochs,
    GetEpochs,
    GetHaStatus,
    GetTopicStats,
    HaStatus,
    TopicStats,
)
from roquet.wire.calls.pull import Pull
from roquet.wire.codes import ResponseCode
from roquet.wire.fastjson import codec

INTERVAL_S: Final = 0.2

TIMEOUT_MS: Final = 600
"""Ms after which a broker counts as silent: a live one answers within a few."""

GROUP: Final = "failover-probe"


class BrokerSampler:
    """Samples of all brokers."""

    def __init__(self, addresses: Mapping[str, str], topic: str, now_ms: Callable[[], int]) -> None:
        """`addresses` are HOST:PORT by broker; `now_ms` gives ms since the demo began."""
        self._addresses = addresses
        self._topic = topic
        self._now_ms = now_ms
        self._pool = ChannelPool()
        self.samples: list[BrokerSample] = []
        self.latest: dict[str, BrokerSample] = {}
        """The last answer of each broker."""

    def forget(self) -> None:
        """Forget all samples: the demo begins, and its clock at 0."""
        self.samples.clear()
        self.latest.clear()

    async def serve(self) -> None:
        """Ask all brokers, forever."""
        async with self._pool, asyncio.TaskGroup() as group:
            for broker in self._addresses:
                group.create_task(self._watch(broker))

    async def _watch(self, broker: str) -> None:
        while True:
            with suppress(CallError, FieldError):  # silent, or about to change its role
                await self.ask(broker)
            await asyncio.sleep(INTERVAL_S)

    async def ask(self, broker: str) -> BrokerSample:
        """Take one sample of a broker. Raises CallError and FieldError."""
        address = self._addresses[broker]
        status = codec.loads((await self._call(address, GetHaStatus())).body, HaStatus)
        sample = BrokerSample(
            at_ms=self._now_ms(),
            broker=broker,
            state=state_of(
                is_master=status.master, takes_messages=await self._takes_messages(address)
            ),
            epoch=await self._epoch(address),
            confirmed=await self._confirmed(address),
            in_sync=status.in_sync_slave_nums,
        )
        self.samples.append(sample)
        self.latest[broker] = sample
        return sample

    async def _epoch(self, address: str) -> int:
        """Latest epoch of a log; 0 for none, and without a controller."""
        try:
            reply = await self._call(address, GetEpochs())
        except CallRefused:
            return 0
        epochs = codec.loads(reply.body, BrokerEpochs).epoch_list
        return max((each.epoch for each in epochs), default=0)

    async def _confirmed(self, address: str) -> int:
        """Messages in the topic's queues that consumers see; 0 while the topic is not there."""
        try:
            reply = await self._call(address, GetTopicStats(topic=self._topic))
        except CallRefused:
            return 0
        table = codec.loads(reply.body, TopicStats).offset_table
        return sum(queue.max_offset for queue in table.values())

    async def _takes_messages(self, address: str) -> bool:
        call = Pull(
            consumer_group=GROUP,
            topic=self._topic,
            queue_id=0,
            queue_offset=0,
            max_msg_nums=1,
            sys_flag=PullFlag.SUBSCRIPTION,
            commit_offset=-1,
            suspend_timeout_millis=0,
            subscription="*",
            sub_version=0,
        )
        try:
            await self._pool.call(address, call, TIMEOUT_MS)
        except CallRefused as error:
            return error.code != ResponseCode.SYSTEM_BUSY
        return True

    async def _call(self, address: str, call: Call[Reply]) -> Reply:
        return await self._pool.call(address, call, TIMEOUT_MS)
