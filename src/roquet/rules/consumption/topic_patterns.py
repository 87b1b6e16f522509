"""Topic patterns: topics that match regular expressions, and those that are gone for good."""

import re
from collections.abc import Collection, Iterable, Mapping
from typing import Final, TypeAlias

from roquet.model.names import (
    DLQ_PREFIX,
    RETRY_PREFIX,
    SYSTEM_TOPIC_PREFIX,
    SYSTEM_TOPICS,
    reply_topic,
)
from roquet.model.namespaces import namespace_of, unwrap

TopicPattern: TypeAlias = re.Pattern[str]

ABSENCE_MS: Final = 60_000
"""Time from the first list without a topic until it counts as deleted: a name server that was
restarted knows nothing until the brokers register with it, which each does every 30 s."""

_PREFIXES: Final = (RETRY_PREFIX, DLQ_PREFIX, SYSTEM_TOPIC_PREFIX)
_REPLIES: Final = reply_topic("")


def is_user_topic(topic: str, hidden: Collection[str]) -> bool:
    """Whether a topic is a user's own: no retry, dead-letter or system topic.

    `hidden` are the topics that brokers name after themselves and their clusters.
    """
    if topic.startswith(_PREFIXES) or topic.endswith(_REPLIES):
        return False
    return topic not in SYSTEM_TOPICS and topic not in hidden


def match_topics(
    patterns: Iterable[TopicPattern],
    topics: Iterable[str],
    hidden: Collection[str] = (),
    namespace: str | None = None,
) -> dict[str, TopicPattern]:
    """The users' topics of a namespace that a pattern matches in full, sorted, with that pattern.

    Patterns see names without the namespace; the first one that matches counts. Without a namespace
    the topics of all namespaces are left out.
    """
    own = (t for t in set(topics) if namespace_of(t) == (namespace or ""))
    names = sorted((topic, unwrap(namespace, topic)) for topic in own)
    last_first = [*patterns][::-1]
    return {
        topic: pattern  # the last entry of a topic stays
        for topic, name in names
        if is_user_topic(name, hidden)
        for pattern in last_first
        if pattern.fullmatch(name)
    }


def absences_after(
    absent_since_ms: Mapping[str, int | None], listed: Collection[str], now_ms: int
) -> dict[str, int | None]:
    """Since when each topic is absent, None if it is not, after a list made now.

    Those that are gone are left out.
    """
    since_ms: dict[str, int | None] = {}
    for topic, absent_ms in absent_since_ms.items():
        first_ms = now_ms if absent_ms is None else absent_ms
        if topic in listed:
            since_ms[topic] = None
        elif now_ms - first_ms < ABSENCE_MS:
            since_ms[topic] = first_ms
    return since_ms
