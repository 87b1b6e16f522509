"""Masking: rules that hide message bodies, or fields of JSON bodies, from everybody who looks.

payments            hides the bodies of the topic
customer-*:email    hides the values of the JSON fields called email, at any depth
*:card,iban         hides both fields in every topic
"""

import json
from collections.abc import Iterable, Sequence
from fnmatch import fnmatchcase
from typing import Final

import msgspec

from roquet.model import names, properties
from roquet.model.errors import ConfigError
from roquet.model.message import StoredMessage

MASK: Final = "•••"
"""Stands for a hidden value."""

_ORIGINS: Final = (properties.RETRY_TOPIC, properties.DLQ_ORIGIN_TOPIC, properties.REAL_TOPIC)
"""Properties that name the topic that a message was first sent to."""


class MaskRule(msgspec.Struct, frozen=True):
    """Topics by a pattern with `*` and `?`, and the JSON fields to hide in their messages."""

    topics: str
    fields: tuple[str, ...] = ()
    """Empty hides whole bodies."""


class MaskedBody(msgspec.Struct, frozen=True):
    """A body as it may be shown."""

    data: bytes
    is_masked: bool = False
    """Whether a rule has hidden something; a body that is hidden as a whole is empty."""


def parse_rule(text: str) -> MaskRule:
    """Parse `TOPICS` or `TOPICS:FIELD,FIELD`. Raises ConfigError for any other text."""
    topics, colon, listed = text.partition(":")
    fields = tuple(field.strip() for field in listed.split(",")) if colon else ()
    if not topics.strip() or not all(fields) or (colon and not fields):
        raise ConfigError(f"{text!r} is no mask rule: TOPICS, or TOPICS:FIELD,FIELD")
    return MaskRule(topics.strip(), fields)


def mask_body(rules: Iterable[MaskRule], message: StoredMessage) -> MaskedBody:
    """The body without what the rules of its topic hide.

    Retries and dead letters go by the rules of the topic that they came from, too. Where a rule
    names fields, a body that is no JSON or gives a name twice is hidden as a whole: nobody knows
    what is in it.
    """
    topics = topics_of(message)
    found = [rule for rule in rules if any(fnmatchcase(topic, rule.topics) for topic in topics)]
    if not found:
        return MaskedBody(message.body)
    if any(not rule.fields for rule in found):
        return MaskedBody(b"", is_masked=True)
    fields = frozenset(field.lower() for rule in found for field in rule.fields)
    try:
        value = msgspec.json.decode(message.body)
        masked, changed = _masked(value, fields)
        if changed:
            return MaskedBody(msgspec.json.encode(masked), is_masked=True)
        if _may_name(message.body, fields):
            json.loads(message.body, object_pairs_hook=_check_names)
    except (ValueError, RecursionError):
        return MaskedBody(b"", is_masked=True)
    return MaskedBody(message.body)


def topics_of(message: StoredMessage) -> Sequence[str]:
    """Topics whose rules apply to a message: its own, and those that its properties name."""
    values = message.properties
    origins = [values.get(name) for name in _ORIGINS]
    # A message that was set aside names its topics as TOPIC/QUEUE/OFFSET/POSITION and QUEUE/TOPIC.
    origins.append(values.get(properties.SET_ASIDE_PLACE, "").partition("/")[0])
    origins.append(values.get(properties.SET_ASIDE_GOAL, "").partition("/")[2])
    known = [topic for topic in origins if topic and not names.is_dlq(topic)]
    if not known and names.is_retry(message.topic):
        known = list(names.possible_origins(message.topic))
    return [message.topic, *known]


def _may_name(body: bytes, fields: Iterable[str]) -> bool:
    """Whether a field's name may be in a body, perhaps with escaped characters."""
    text = body.decode().lower()
    return "\\" in text or any(field in text for field in fields)


def _check_names(pairs: Sequence[tuple[str, object]]) -> None:
    """Raise ValueError for an object that gives a name twice: only one of its values was seen."""
    if len({name for name, _ in pairs}) < len(pairs):
        raise ValueError("a name is given twice")


def _masked(value: object, fields: frozenset[str]) -> tuple[object, bool]:
    """A JSON value with hidden fields, and whether there were any."""
    if isinstance(value, dict):
        parts = {name: _masked(item, fields) for name, item in value.items()}
        hidden = {name: MASK for name in value if name.lower() in fields}
        shown = {name: item for name, (item, _) in parts.items()} | hidden
        return shown, bool(hidden) or any(changed for _, changed in parts.values())
    if isinstance(value, list):
        items = [_masked(item, fields) for item in value]
        return [item for item, _ in items], any(changed for _, changed in items)
    return value, False
