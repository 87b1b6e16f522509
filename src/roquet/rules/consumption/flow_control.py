"""Flow control: a consumer stops pulling a queue while too much of it is in flight."""

from typing import Final

import msgspec

IN_FLIGHT_MAX: Final = 1_000
"""Messages of one queue that a member holds at most, as in Java."""

IN_FLIGHT_BYTES_MAX: Final = 100 * 1024 * 1024
"""Bytes of one queue that a member holds at most, as in Java."""

SPAN_MAX: Final = 2_000
"""Distance of the lowest and highest offset in flight, as in Java: at most this many messages come
twice if a member dies while one message keeps it busy."""


class FlowLimits(msgspec.Struct, frozen=True, kw_only=True):
    """Limits for the messages of one queue in flight."""

    count: int = IN_FLIGHT_MAX
    size: int = IN_FLIGHT_BYTES_MAX
    span: int | None = SPAN_MAX
    """None for ordered queues, where nothing overtakes."""

    def are_reached(self, count: int, size: int, span: int) -> bool:
        """Whether to wait with the next pull until some messages are handled."""
        if count >= self.count or size >= self.size:
            return True
        return self.span is not None and span > self.span
