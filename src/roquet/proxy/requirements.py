"""Requirements: the topics and groups that each request to the proxy needs, and for which use.

They are those of Apache RocketMQ 5.5.0's proxy; a batch needs all its topics, not the first alone.
"""

from collections.abc import Callable, Iterator, Mapping
from types import MappingProxyType
from typing import Any, Final

from roquet.access.required_access import PUB, ROUTE, SUB_OR_GET, SUB_OR_UPDATE
from roquet.access.requirement import SUB, Actions, on_group, on_topic
from roquet.rules.access.decision import AccessRequest

ProxyNeeds = Callable[[Any], Iterator[AccessRequest]]
"""From a request, a message of the protocol, to what it needs."""


def _sent(request: Any) -> Iterator[AccessRequest]:
    for topic in dict.fromkeys(message.topic.name for message in request.messages):
        yield from on_topic(topic, PUB, SUB)


def _topic(actions: Actions, of_retry: Actions | None = None) -> ProxyNeeds:
    return lambda request: on_topic(request.topic.name, actions, of_retry)


def _group(request: Any) -> Iterator[AccessRequest]:
    yield from on_group(request.group.name, SUB)


def _consumed(request: Any) -> Iterator[AccessRequest]:
    yield from on_topic(request.topic.name, SUB)
    yield from _group(request)


def _queue(actions: Actions, *, has_group: bool = True) -> ProxyNeeds:
    def needs(request: Any) -> Iterator[AccessRequest]:
        yield from on_topic(request.message_queue.topic.name, actions)
        if has_group:
            yield from on_group(request.group.name, actions)

    return needs


def _settings(request: Any) -> Iterator[AccessRequest]:
    settings = request.settings
    for topic in settings.publishing.topics:
        yield from on_topic(topic.name, PUB, SUB)
    yield from on_group(settings.subscription.group.name, SUB)
    for entry in settings.subscription.subscriptions:
        yield from on_topic(entry.topic.name, SUB)


NEEDS: Final[Mapping[str, ProxyNeeds]] = MappingProxyType(
    {
        "QueryRoute": _topic(ROUTE, SUB_OR_GET),
        "QueryAssignment": _consumed,
        "SendMessage": _sent,
        "RecallMessage": _topic(PUB),
        "EndTransaction": _topic(PUB),
        "ReceiveMessage": _queue(SUB),
        "AckMessage": _consumed,
        "ChangeInvisibleDuration": _consumed,
        "ForwardMessageToDeadLetterQueue": _consumed,
        "PullMessage": _queue(SUB),
        "UpdateOffset": _queue(SUB_OR_UPDATE),
        "GetOffset": _queue(SUB_OR_GET),
        "QueryOffset": _queue(SUB_OR_GET, has_group=False),
        "Heartbeat": _group,
        "NotifyClientTermination": _group,
        "Telemetry": _settings,
    }
)
"""Needs by the names of the methods."""
