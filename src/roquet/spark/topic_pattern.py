"""Topics: which of a cluster's topics a pattern means."""

import re
from collections.abc import Iterable
from typing import Final

from roquet.model import names
from roquet.model.errors import ConfigError

_REPLIES: Final = names.reply_topic("")
_PREFIXES: Final = (names.RETRY_PREFIX, names.DLQ_PREFIX, names.SYSTEM_TOPIC_PREFIX)


def parse_pattern(text: str, name: str) -> str:
    """A regular expression; ConfigError says where it is wrong."""
    pattern = text.strip()
    if not pattern:
        raise ConfigError(f"option {name!r} is empty")
    try:
        re.compile(pattern)
    except re.error as error:
        raise ConfigError(f"{name}: {pattern!r} is no regular expression: {error}") from None
    return pattern


def matching(pattern: str, topics: Iterable[str], hidden: Iterable[str]) -> tuple[str, ...]:
    """The topics that the whole pattern matches, sorted.

    Those of the system, and the `hidden` ones, which are named after brokers and clusters, are
    only meant by a pattern that names them, or that begins as they do.
    """
    wanted, not_meant = re.compile(pattern), frozenset(hidden)
    named = frozenset(re.split(r"[|()]", pattern))
    return tuple(
        sorted(
            topic
            for topic in set(topics)
            if wanted.fullmatch(topic) and (topic in named or _is_meant(pattern, topic, not_meant))
        )
    )


def _is_meant(pattern: str, topic: str, hidden: frozenset[str]) -> bool:
    for prefix in _PREFIXES:
        if topic.startswith(prefix):
            return pattern.startswith(prefix)
    return not (topic in names.SYSTEM_TOPICS or topic in hidden or topic.endswith(_REPLIES))
