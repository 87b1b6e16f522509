"""Table editions: how often each table of a broker has changed since the broker started.

    1763836680000-4-17-90211-0
    started (ms)  │ │  │     request modes
                  │ │  offsets
                  │ groups
                  topics

A replica keeps the editions that it has copied and asks for what is newer. Only Roquet uses them.
"""

import re
from typing import Final

import msgspec

_EDITIONS: Final = re.compile(r"(\d{1,18})-(\d{1,18})-(\d{1,18})-(\d{1,18})-(\d{1,18})", re.ASCII)


class TableEditions(msgspec.Struct, frozen=True, kw_only=True):
    """Editions of the tables that change by requests."""

    started_ms: int
    """When the broker started: editions of another process mean nothing."""
    topics: int
    groups: int
    offsets: int
    request_modes: int

    @property
    def text(self) -> str:
        """The editions as a field of a header."""
        return "-".join(str(number) for number in msgspec.structs.astuple(self))


def parse_editions(text: str) -> TableEditions | None:
    """Editions of a header's field; None for another text."""
    match = _EDITIONS.fullmatch(text)
    if match is None:
        return None
    started_ms, topics, groups, offsets, request_modes = (int(number) for number in match.groups())
    return TableEditions(
        started_ms=started_ms,
        topics=topics,
        groups=groups,
        offsets=offsets,
        request_modes=request_modes,
    )
