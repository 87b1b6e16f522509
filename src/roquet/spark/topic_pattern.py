"""Topic patterns: the topics of a cluster that a regular expression selects."""

import re
from collections.abc import Iterable
from typing import Final

from roquet.model import names
from roquet.model.errors import ConfigError

_REPLIES: Final = names.reply_topic("")
_PREFIXES: Final = (names.RETRY_PREFIX, names.DLQ_PREFIX, names.SYSTEM_TOPIC_PREFIX)


def parse_pattern(text: str, name: str) -> str:
    """The regular expression in an option's text; ConfigError when it does not compile."""
    pattern = text.strip()
    if not pattern:
        raise ConfigError(f"option {name!r} is empty")
    try:
        re.compile(pattern)
    except re.error as error:
        raise ConfigError(f"{name}: {pattern!r} is no regular expression: {error}") from None
    return pattern


def matching(pattern: str, topics: Iterable[str], hidden: Iterable[str]) -> tuple[str, ...]:
    """The topics that the pattern matches in full, sorted.

    System topics and `hidden` ones (named after brokers and clusters) are left out unless the
    pattern names them. Retry, dead-letter and %SYS% topics need a pattern with their prefix.
    """
    expression, hidden_names = re.compile(pattern), frozenset(hidden)
    named = frozenset(re.split(r"[|()]", pattern))
    return tuple(
        sorted(
            topic
            for topic in set(topics)
            if expression.fullmatch(topic)
            and (topic in named or _is_selected(pattern, topic, hidden_names))
        )
    )


def _is_selected(pattern: str, topic: str, hidden: frozenset[str]) -> bool:
    for prefix in _PREFIXES:
        if topic.startswith(prefix):
            return pattern.startswith(prefix)
    return not (topic in names.SYSTEM_TOPICS or topic in hidden or topic.endswith(_REPLIES))
