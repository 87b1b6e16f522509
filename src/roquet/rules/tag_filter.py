"""Tag hashes: which queue entries a subscription wants.

A queue entry holds a hash of the message's tag. The broker compares hashes, so a message whose tag
has the same hash by chance gets through; the consumer compares the text again.
"""

from collections.abc import Callable
from typing import Final

from roquet.model.errors import UsageError
from roquet.model.subscription import ALL

SEPARATOR: Final = "||"

BLANKS: Final = "".join(map(chr, range(0x21)))
"""Characters that Java's String.trim removes: up to U+0020, and no other space of Unicode."""

TagHash = Callable[[str], int]
"""Function from text to number: Java's String.hashCode, which is in the wire package."""


def parse_tags(expression: str | None) -> frozenset[str] | None:
    """Tags that an expression names; None if it wants every message.

    Blanks only (`" "`, `"|| ||"`) name no tag and are accepted: nothing matches. Raises UsageError
    if there is not even a blank beside the separators (Java's String.split then returns no part).
    """
    if not expression or expression == ALL:
        return None
    parts = expression.split(SEPARATOR)
    if not any(parts):
        raise UsageError(f"the tag expression {expression!r} names no tag")
    return frozenset(tag for part in parts if (tag := part.strip(BLANKS)))


def is_single_tag(tag: str) -> bool:
    """Whether a subscription can ask for exactly this tag."""
    return any(tag.split(SEPARATOR)) and parse_tags(tag) == frozenset({tag})


def tag_codes(expression: str | None, hash_of: TagHash) -> frozenset[int] | None:
    """Hashes of the tags that an expression names; None if it wants every message."""
    named = parse_tags(expression)
    return None if named is None else frozenset(map(hash_of, named))
