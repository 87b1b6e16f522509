"""Cold read limits: what operators set for groups; it has no effect here (never saved).

The genuine broker bounds the memory that a group's reads of old messages take. Reads here go
through the page cache, which the kernel bounds, so limits are kept, told and otherwise passed over.
"""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from roquet.model.errors import UsageError

GROUPS_MAX: Final = 1_000
"""Groups with a limit: operators name few, and a table that a stranger fills needs an end."""


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
        """Forget a group's limit, if it has one."""
        self._limits.pop(group, None)
