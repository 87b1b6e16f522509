"""Topic attributes: their names, values, and the effect of changes such as `+key=value,-key`.

The rules and remarks are those of Apache's AttributeParser, AttributeUtil and TopicAttributes. An
attribute value that Apache's broker implements and this one does not is refused, never stored and
ignored.
"""

from collections.abc import Iterator, Mapping
from types import MappingProxyType
from typing import Final, NamedTuple

import msgspec

from roquet.model.errors import UsageError

LONG_MAX: Final = 2**63 - 1

MESSAGE_TYPE: Final = "message.type"
PRIORITY: Final = "PRIORITY"
"""Value of MESSAGE_TYPE of a topic whose queues are priorities."""


class Attribute(msgspec.Struct, frozen=True, kw_only=True):
    """One attribute: its values, and whether it may be changed on an existing topic."""

    values: frozenset[str] = frozenset()
    """Words that are allowed; empty for a number."""
    least: int = 0
    """Smallest number allowed, for an attribute that is not a word."""
    refused: Mapping[str, str] = MappingProxyType({})
    """Words that Apache's broker knows, with the reason why they cannot be set here."""
    changeable: bool = True


ATTRIBUTES: Final[Mapping[str, Attribute]] = MappingProxyType(
    {
        "queue.type": Attribute(
            values=frozenset({"SimpleCQ", "BatchCQ"}),
            refused={
                "BatchCQ": "queue.type BatchCQ is not supported, SimpleCQ is: each message of "
                "a batch has an offset and an entry of its own here"
            },
            changeable=False,
        ),
        "cleanup.policy": Attribute(
            values=frozenset({"DELETE", "COMPACTION"}),
            refused={
                "COMPACTION": "cleanup.policy COMPACTION is not supported, DELETE is: no message "
                "goes before its time because a newer one has its key"
            },
            changeable=False,
        ),
        MESSAGE_TYPE: Attribute(
            values=frozenset(
                {"UNSPECIFIED", "NORMAL", "FIFO", "DELAY", "TRANSACTION", PRIORITY, "MIXED"}
            ),
            # By default Apache's broker accepts no such topics, either.
            refused={"MIXED": "MIXED message type is not supported."},
        ),
        "reserve.time": Attribute(least=-1),
    }
)


def parse_changes(text: str) -> dict[str, str]:
    """Parse changes into signed key → value; raises UsageError for a malformed one."""
    parsed: dict[str, str] = {}
    for change in filter(None, (part.strip() for part in text.split(","))):
        key, equals, value = change.partition("=")
        if equals and not key.startswith("+"):
            raise UsageError(f"add/alter attribute format is wrong: {key}")
        if not equals and not key.startswith("-"):
            raise UsageError(f"delete attribute format is wrong: {key}")
        if key in parsed:
            raise UsageError(f"key duplication: {key}")
        parsed[key] = value
    return parsed


def apply_changes(known: Mapping[str, str] | None, wanted: Mapping[str, str]) -> dict[str, str]:
    """Apply changes to a topic's attributes (None for a new topic) and return the result.

    Raises UsageError for a change that is not allowed; then none of them applies.
    """
    attributes = dict(known or {})
    for sign, key, value in _signed_changes(wanted):
        attribute = ATTRIBUTES.get(key)
        if known is None and sign == "-":
            raise UsageError(f"only add attribute is supported while creating topic. key: {key}")
        if sign == "-" and key not in attributes:
            raise UsageError(f"attempt to delete a nonexistent key: {key}")
        if attribute is None:
            raise UsageError(f"unsupported key: {key}")
        if known is not None and not attribute.changeable and attributes.get(key) != value:
            raise UsageError(f"attempt to update an unchangeable attribute. key: {key}")
        if sign == "-":
            del attributes[key]
        else:
            _check(key, attribute, value)
            attributes[key] = value
    return attributes


class _Change(NamedTuple):
    sign: str
    key: str
    value: str


def _signed_changes(wanted: Mapping[str, str]) -> Iterator[_Change]:
    seen: set[str] = set()
    for signed, value in wanted.items():
        sign, key = signed[:1], signed[1:]
        if sign not in ("+", "-") or not key:
            raise UsageError(f"wrong format key: {signed}")
        if key in seen:
            raise UsageError(f"alter duplication key. key: {key}")
        seen.add(key)
        yield _Change(sign, key, value)


def _check(key: str, attribute: Attribute, value: str) -> None:
    if attribute.values:
        if value not in attribute.values:
            words = ", ".join(sorted(attribute.values))
            raise UsageError(f"{key}: value {value!r} is not in set: [{words}]")
        if value in attribute.refused:
            raise UsageError(attribute.refused[value])
        return
    try:
        number = int(value)
    except ValueError:
        raise UsageError(f"{key}: {value!r} is not a number") from None
    if not attribute.least <= number <= LONG_MAX:
        raise UsageError(f"{key}: value is not in range({attribute.least}, {LONG_MAX})")
