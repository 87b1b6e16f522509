"""Tag expressions: the tag codes that a subscription asks for."""

from functools import lru_cache
from typing import Final

from roquet.model.errors import CallRefused, UsageError
from roquet.rules import tag_filter
from roquet.wire.codes import ResponseCode
from roquet.wire.java_hash import hash_code

TagCodes = frozenset[int] | None
"""Tag codes; None takes every message."""

EXPRESSIONS_MAX: Final = 1_024
"""Tag expressions whose codes are remembered: a group has one or few."""


def parse_tag_codes(expression: str | None) -> TagCodes:
    """The tag codes of an expression; refused when it names none."""
    try:
        return _codes(expression)
    except UsageError as error:
        raise CallRefused(
            ResponseCode.SUBSCRIPTION_PARSE_FAILED,
            f"parse the consumer's subscription failed: {error}",
        ) from error


@lru_cache(EXPRESSIONS_MAX)
def _codes(expression: str | None) -> TagCodes:
    return tag_filter.tag_codes(expression, hash_code)
