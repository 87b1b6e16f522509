"""ColdReadLimits: limits that operators set for groups; they have no effect (in memory only).

The genuine broker bounds the memory that a group's reads of old messages take. Reads here go
through the page cache, which the kernel bounds, so limits are stored and returned, but ignored.
"""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from roquet.model.errors import UsageError

GROUPS_MAX: Final = 1_000
"""Groups with a limit: operators set few, and a table that clients can fill needs a bound."""


class ColdReadLimits:
    """Limits in bytes, by group."""

    def __init__(self) -> None:
        self._limits: dict[str, int] = {}

    @property
    def by_group(self) -> Mapping[str, int]:
        """All limits."""
        return MappingProxyType(self._limits)

    def put(self, limits: Mapping[str, int]) -> None:
        """Set limits, all of them or, raising UsageError, none."""
        together = self._limits | dict(limits)
        if len(together) > GROUPS_MAX:
            raise UsageError(
                f"limits of {len(together)} groups: {GROUPS_MAX} are kept; remove some first"
            )
        self._limits = together

    def remove(self, group: str) -> None:
        """Remove a group's limit, if it has one."""
        self._limits.pop(group, None)
