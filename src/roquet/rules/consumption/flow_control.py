"""Flow control: when a consumer stops to pull a queue until more is handled."""

from typing import Final

import msgspec

IN_FLIGHT_MAX: Final = 1_000
"""Messages of one queue that a member holds at most: as many as Java's."""

IN_FLIGHT_BYTES_MAX: Final = 100 * 1024 * 1024
"""Bytes of one queue that a member holds at most: as many as Java's."""

SPAN_MAX: Final = 2_000
"""Between the lowest and the highest offset in flight, as in Java: so much comes twice at most
when a member dies while one message keeps it busy."""


class FlowLimits(msgspec.Struct, frozen=True, kw_only=True):
    """How much of one queue may be in flight."""

    count: int = IN_FLIGHT_MAX
    size: int = IN_FLIGHT_BYTES_MAX
    span: int | None = SPAN_MAX
    """None for ordered queues, where nothing overtakes."""

    def are_reached(self, count: int, size: int, span: int) -> bool:
        """Whether to wait until some are handled before more are pulled."""
        if count >= self.count or size >= self.size:
            return True
        return self.span is not None and span > self.span
