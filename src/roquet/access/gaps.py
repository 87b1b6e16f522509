"""Access gaps: checks that Apache's brokers do not make, each opened by its name in a setting.

access_compatibility = passwords,transaction_checks
"""

from collections.abc import Collection
from contextlib import suppress
from enum import StrEnum
from typing import Final

from roquet.model.errors import ConfigError
from roquet.model.settings import parse_bool


class AccessGap(StrEnum):
    """A check that is left out, as Apache's brokers do."""

    CODES = "codes"
    """Requests of codes that Apache's classes do not annotate need no policy."""
    MESSAGES = "messages"
    """A message that a request names by its position may be of any topic."""
    TRANSACTION_CHECKS = "transaction_checks"
    """Half messages are shown to whoever has registered in their producer group."""
    REPLICA_LOG = "replica_log"
    """The log is sent to whoever connects, and who may change the cluster says to which addresses
    it is."""
    POLICIES = "policies"
    """Policies are changed by users who may change the cluster, also their own."""
    PASSWORDS = "passwords"
    """Passwords of users are shown to users who may see the cluster."""


ALL: Final = tuple(AccessGap)


def parse_gaps(text: str, where: str) -> tuple[AccessGap, ...]:
    """Gaps of a setting: names with commas, or `all`, or a switch for each one or none.

    Raises ConfigError.
    """
    words = [word.strip().lower() for word in text.split(",") if word.strip()]
    if words == ["all"]:
        return ALL
    if len(words) == 1:
        with suppress(ConfigError):  # it is a name, then
            return ALL if parse_bool(words[0]) else ()
    for word in words:
        if word not in frozenset(AccessGap):
            raise ConfigError(
                f"{where}: {word[:40]!r} is none of {', '.join(AccessGap)}; true opens all"
            )
    return tuple(gap for gap in AccessGap if gap in words)


def write_gaps(gaps: Collection[AccessGap]) -> str:
    """Write gaps as `parse_gaps` reads them."""
    return "true" if len(gaps) == len(AccessGap) else ",".join(gaps) or "false"
