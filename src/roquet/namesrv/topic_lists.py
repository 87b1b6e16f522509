"""Topic lists: names of topics as bodies of replies; long ones are made in a thread, and kept."""

import asyncio
from collections.abc import Callable, Hashable
from typing import Final

from roquet.net.router import HandlerReply
from roquet.net.threads import in_thread
from roquet.rules.routing import BrokerRegistrations
from roquet.wire.call import Reply
from roquet.wire.calls.bodies import TopicList
from roquet.wire.fastjson import codec

NAMES_MAX: Final = 2_000
"""Topics of all brokers that are listed at once, in a millisecond."""

LISTS_MAX: Final = 8
"""Lists that are kept until a broker registers something else: with 600,000 topics, 20 MB each."""


class TopicLists:
    """Lists of topics by kind, each of the registrations that it was made of."""

    def __init__(self) -> None:
        self._known: BrokerRegistrations = {}
        self._bodies: dict[Hashable, bytes] = {}
        self._turn = asyncio.Lock()
        """Held while a list is made: several threads would take Python's lock from the loop."""

    def reply(
        self,
        registrations: Callable[[], BrokerRegistrations],
        kind: Hashable,
        names: Callable[[BrokerRegistrations], list[str]],
    ) -> HandlerReply:
        """The reply with the names of a kind; `kind` says what `names` finds."""
        known = registrations()
        if sum(len(broker.topics) for broker in known.values()) <= NAMES_MAX:
            return Reply(body=_body(names(known)))
        return self._later(registrations, kind, names)

    async def _later(
        self,
        registrations: Callable[[], BrokerRegistrations],
        kind: Hashable,
        names: Callable[[BrokerRegistrations], list[str]],
    ) -> Reply:
        async with self._turn:
            known = registrations()
            if known is not self._known or len(self._bodies) >= LISTS_MAX:
                self._known, self._bodies = known, {}
            if kind not in self._bodies:
                self._bodies[kind] = await in_thread(lambda: _body(names(known)))
            return Reply(body=self._bodies[kind])


def _body(names: list[str]) -> bytes:
    return codec.dumps(TopicList(topic_list=names))
