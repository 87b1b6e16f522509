"""Tag hashes: which queue entries a subscription wants.

A queue entry holds a number made of the message's tag. The broker compares numbers, so a message
whose tag merely has the same number gets through; the consumer compares the text again.
"""

from collections.abc import Callable
from typing import Final

from roquet.model.errors import UsageError
from roquet.model.subscription import ALL

SEPARATOR: Final = "||"

BLANKS: Final = "".join(map(chr, range(0x21)))
"""Characters that Java's String.trim takes off: up to U+0020, and no other space of Unicode."""

TagHash = Callable[[str], int]
"""Text to number: Java's String.hashCode, which lives with the bytes."""


def parse_tags(expression: str | None) -> frozenset[str] | None:
    """The tags that an expression names; None when it wants every message.

    Blanks alone (`" "`, `"|| ||"`) name no tag and are accepted: nothing matches. UsageError when
    there is not even a blank beside the separators (Java's String.split gives no piece then).
    """
    if not expression or expression == ALL:
        return None
    pieces = expression.split(SEPARATOR)
    if not any(pieces):
        raise UsageError(f"the tag expression {expression!r} names no tag")
    return frozenset(tag for piece in pieces if (tag := piece.strip(BLANKS)))


def is_single_tag(tag: str) -> bool:
    """Whether a subscription can ask for just this tag."""
    return any(tag.split(SEPARATOR)) and parse_tags(tag) == frozenset({tag})


def tag_codes(expression: str | None, hash_of: TagHash) -> frozenset[int] | None:
    """The numbers of the tags that an expression names; None when it wants every message."""
    named = parse_tags(expression)
    return None if named is None else frozenset(map(hash_of, named))


def matches(wanted: frozenset[int] | None, tag_code: int) -> bool:
    """Whether a queue entry may be one that the subscription wants."""
    return wanted is None or tag_code in wanted
