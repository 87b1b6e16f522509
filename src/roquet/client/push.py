"""PushConsumer: queues come by rebalance, messages go to your function."""

import asyncio
import inspect
import logging
from collections.abc import Awaitable, Callable, Sequence
from typing import Final, TypeAlias

from roquet.client.background import Alarm, Trouble, stop
from roquet.client.config import ConsumerConfig
from roquet.client.consumer import Consumer
from roquet.client.pulling import Taste
from roquet.model.errors import CallError, RoquetError, UsageError
from roquet.model.names import check_topic
from roquet.model.queue import MessageQueue
from roquet.model.subscription import ALL, ConsumeType
from roquet.net.router import Peer
from roquet.rules.rebalance import Difference, difference, next_look_ms, share
from roquet.wire.calls.heartbeat import ConsumersChanged

log = logging.getLogger(__name__)

Watcher: TypeAlias = Callable[[Sequence[MessageQueue]], Awaitable[object] | object]
"""What is told of queues that came or went; a plain function or an `async def`."""

PATIENCE: Final = 3
"""Looks without an answer before a word is said: a topic may be new, its route not known yet."""

_DEFAULTS: Final = ConsumerConfig()


class PushConsumer(Consumer):
    """A member of a group that shares all queues of its topics.

        async with PushConsumer("127.0.0.1:9876", group="billing", topic="orders") as consumer:
            await consumer.run(charge)

    At least once: a message that was not acknowledged when its member died, or when its queue went
    to another member, is handled again there.
    """

    _consume_type = ConsumeType.CONSUME_PASSIVELY
    _saves_progress = True

    def __init__(
        self,
        namesrv: str | Sequence[str] | None = None,
        *,
        group: str,
        topic: str | None = None,
        tags: str = ALL,
        config: ConsumerConfig = _DEFAULTS,
    ) -> None:
        super().__init__(namesrv, group, config)
        self._look = Alarm()
        self._troubles: dict[str, Trouble] = {}
        self._assigned: list[Watcher] = []
        self._revoked: list[Watcher] = []
        self._session.router.add(ConsumersChanged, self._members_changed)
        if topic is not None:
            self.subscribe(topic, tags)

    def subscribe(self, topic: str, tags: str = ALL) -> None:
        """Listen to a topic: to all of it, or to messages with one of some tags (`A || B`)."""
        now_ms = self._config.clock.now_ms()
        self._tastes[check_topic(topic)] = Taste.of(topic, tags, now_ms)
        self._subscriptions_changed()

    def unsubscribe(self, topic: str) -> None:
        """Listen to a topic no more."""
        self._tastes.pop(topic, None)
        self._subscriptions_changed()

    def on_assigned(self, watcher: Watcher) -> None:
        """Tell a function which queues have become this member's, before they are read."""
        self._assigned.append(watcher)

    def on_revoked(self, watcher: Watcher) -> None:
        """Tell a function which queues are no longer this member's, once progress is saved."""
        self._revoked.append(watcher)

    async def start(self) -> None:
        """Join the group; `async with` does this."""
        await super().start()
        self._session.routes.on_change(lambda _: self._look.ring())
        background = self._session.background
        self._rebalancing = background.start(self._keep_balance(), f"rebalance of {self.group}")
        background.start(self._keep_saving(), f"progress of {self.group}")

    async def close(self) -> None:
        """Leave the group in good order: others take the queues over where we stopped."""
        if self._session.is_open:
            self._session.identity.check_process()
            await stop(self._rebalancing)
        await super().close()

    def _subscriptions_changed(self) -> None:
        if self._session.is_open:
            self._session.membership.hurry()
            self._look.ring()

    def _members_changed(self, call: ConsumersChanged, peer: Peer) -> None:
        """The broker's notice that somebody came or went."""
        del peer
        if call.consumer_group == self.group:
            self._look.ring()

    async def _keep_balance(self) -> None:
        """See to it that we hold our share, for ever."""
        failures = 0
        while True:
            try:
                failures = 0 if await self.rebalance() else failures + 1
            except Exception:
                failures += 1
                if failures == 1:
                    log.exception("rebalance of %s failed, all queues are kept", self.group)
            await self._look.wait(next_look_ms(failures, self._config.rebalance_period_ms))

    async def rebalance(self) -> bool:
        """Look once who is there and whose the queues are; whether that went well."""
        held = list(self._readers)
        gone = [queue for queue in held if queue.topic not in self._tastes]
        await self._apply(Difference(tuple(gone), ()))
        outcomes = [await self._rebalance_topic(topic) for topic in list(self._tastes)]
        return all(outcomes)

    async def _rebalance_topic(self, topic: str) -> bool:
        """One topic's part of it. What cannot be found out now leaves all as it is."""
        trouble = self._troubles.setdefault(topic, Trouble(f"share of {topic}", PATIENCE))
        try:
            assigned = await self._share(topic)
        except RoquetError as error:
            trouble.tell(error)
            return False
        trouble.over()
        held = [queue for queue in self._readers if queue.topic == topic]
        return await self._apply(difference(held, assigned))

    async def _share(self, topic: str) -> Sequence[MessageQueue]:
        """Our queues of a topic; UsageError when that cannot be told now."""
        routes, membership = self._session.routes, self._session.membership
        queues = await routes.find_readable(topic)
        if routes.readable(topic) is None:
            raise UsageError(f"topic {topic} does not exist yet")
        if not queues:
            return ()
        members = await membership.members(self.group, topic)
        if self.client_id not in members:
            # The broker has not heard of us: it will, and tells all members so.
            await membership.beat()
            members = await membership.members(self.group, topic)
        mine = share(self.client_id, queues, members, self._strategy)
        if mine is None:
            raise UsageError("no broker knows us as a member yet")
        return mine

    async def _apply(self, change: Difference) -> bool:
        """Give away and take; whether all was taken."""
        if change.drop:
            await self._release(change.drop)
            await self._tell(self._revoked, change.drop)
        if not change.start:
            return True
        begins = await asyncio.gather(*map(self._begin, change.start))
        taken = {q: offset for q, offset in zip(change.start, begins, strict=True) if offset >= 0}
        if taken:
            await self._tell(self._assigned, tuple(taken))
        for queue, offset in taken.items():
            self._hold(queue, offset)
        return len(taken) == len(change.start)

    async def _begin(self, queue: MessageQueue) -> int:
        """Where to read on; -1 when the broker cannot say."""
        try:
            return await self._offsets.begin(queue)
        except CallError as error:
            log.info("%s cannot be taken yet: %s", queue, error)
            return -1

    async def _tell(self, watchers: Sequence[Watcher], queues: Sequence[MessageQueue]) -> None:
        for watcher in watchers:
            try:
                answer = watcher(queues)
                if inspect.isawaitable(answer):
                    await answer
            except Exception:
                log.exception("a watcher of the assignment failed")
