"""Renewal: how long the proxy keeps a message invisible while its consumer handles it.

Source: RenewStrategyPolicy and ProxyConfig of Apache RocketMQ 5.5.0.
"""

from typing import Final

SCAN_PERIOD_MS: Final = 5_000
"""Pause between two looks at all receipts."""

AHEAD_MS: Final = 10_000
"""Time before the end of a message's invisible time in which it is renewed."""

INVISIBLE_MS: Final = 60_000
"""Invisible time of messages that are renewed, until the first renewal."""

PERIODS_MS: Final = (60_000, 180_000, 300_000, 600_000, 1_800_000, 3_600_000)
"""Length of each renewal; the last one counts for those that follow."""

LIFE_MAX_MS: Final = 3 * 3_600_000
"""Time since a message's delivery after which it is left to its retry."""

FAILURES_MAX: Final = 3
"""Failures in a row after which a receipt is given up."""

RELEASE_MS: Final = 1_000
"""Invisible time of messages whose consumer has gone."""


def renewal_ms(renewals: int) -> int:
    """Invisible time of the next renewal, after so many."""
    return PERIODS_MS[min(renewals, len(PERIODS_MS) - 1)]


def is_due(visible_ms: int, now_ms: int) -> bool:
    """Whether a message that becomes visible at a time is renewed now."""
    return visible_ms - now_ms <= AHEAD_MS


def is_over(received_ms: int, now_ms: int) -> bool:
    """Whether a message was delivered so long ago that it is renewed no more."""
    return now_ms - received_ms >= LIFE_MAX_MS
