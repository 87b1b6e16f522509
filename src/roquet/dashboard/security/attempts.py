"""LoginAttempts: limits failed logins of a user from an address, of an address, and of all."""

from collections import Counter
from typing import Final

PERIOD_MS: Final = 60_000
"""Time in which failed logins are counted."""

EACH_MAX: Final = 5
"""Failed logins of one user from one address in a period."""

ADDRESS_MAX: Final = 20
"""Failed logins from one address in a period: one host alone must not keep everybody out."""

TOTAL_MAX: Final = 60
"""Failed logins of everybody in a period: each costs the cluster two requests."""


class LoginAttempts:
    """Failed logins of the present period, by user and address."""

    def __init__(self, address_max: int = ADDRESS_MAX) -> None:
        """Behind a proxy everybody has its address: then `address_max` is `TOTAL_MAX`."""
        self._address_max = address_max
        self._since_ms = 0
        self._failed: Counter[tuple[str, str]] = Counter()

    def wait_ms(self, user: str, address: str, now_ms: int) -> int:
        """Time until somebody may try again; 0 if now. `now_ms` is monotonic."""
        self._start_period(now_ms)
        from_address = sum(n for (_, other), n in self._failed.items() if other == address)
        is_free = (
            self._failed[user, address] < EACH_MAX
            and from_address < self._address_max
            and self._failed.total() < TOTAL_MAX
        )
        return 0 if is_free else self._since_ms + PERIOD_MS - now_ms

    def begin(self, user: str, address: str, now_ms: int) -> None:
        """Count a login as failed before it is tried: several at a time are all counted."""
        self._start_period(now_ms)
        self._failed[user, address] += 1

    def succeed(self, user: str, address: str) -> None:
        """Forget the failed logins of somebody who has logged in."""
        self._failed.pop((user, address), None)

    def _start_period(self, now_ms: int) -> None:
        if now_ms - self._since_ms >= PERIOD_MS:
            self._since_ms = now_ms
            self._failed.clear()
