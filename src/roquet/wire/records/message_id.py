"""Message ids: the broker's, which is the address of a record, and the producer's unique key.

    offset id    │ ip (4 or 16) │ port (4) │ position in the log (8) │
    unique key   │ ip (4 or 16) │ process (2) │ loader (4) │ ms of the month (4) │ counter (2) │

Both are written in upper-case hex: 32 characters with IPv4, 56 with IPv6.
"""

from collections.abc import Sequence
from datetime import UTC, datetime
from struct import Struct
from typing import Final

from roquet.model.errors import RecordError
from roquet.wire.records.speedups import compiled

ID_LENGTHS: Final = (32, 56)
"""Characters of an id of either kind, with an IPv4 and with an IPv6 address."""

_POSITION: Final = Struct(">q")
_MADE: Final = Struct(">HIIH")


def offset_message_id(store_host: bytes, position: int) -> str:
    """The broker's id: its raw host (ip and port) and a position in its log."""
    return (store_host + _POSITION.pack(position)).hex().upper()


@compiled
def offset_message_ids(store_host: bytes, positions: Sequence[int]) -> str:
    """The broker's ids of several positions, joined by commas."""
    return ",".join([offset_message_id(store_host, position) for position in positions])


def parse_offset_message_id(text: str) -> tuple[bytes, int]:
    """Raw host and position of a broker's id."""
    raw = _raw(text)
    return raw[:-8], _POSITION.unpack(raw[-8:])[0]


def unique_key(ip: bytes, pid: int, loader_hash: int, ms_since_month: int, counter: int) -> str:
    """The producer's id. Numbers are truncated to their fields: counter and time wrap."""
    made = _MADE.pack(
        pid & 0xFFFF, loader_hash & 0xFFFF_FFFF, ms_since_month & 0xFFFF_FFFF, counter & 0xFFFF
    )
    return (ip + made).hex().upper()


def unique_key_origin(text: str) -> tuple[str, int]:
    """Address and process (its low 16 bits) that made a unique key."""
    from ipaddress import ip_address  # here: only operators look at origins

    raw = _raw(text)
    ip, made = raw[:-12], raw[-12:]
    return str(ip_address(ip)), _MADE.unpack(made)[0]


def month_start_ms(now_ms: int) -> int:
    """Start of the month of `now_ms` (UTC), from which unique keys count their milliseconds."""
    now = datetime.fromtimestamp(now_ms / 1000, UTC)
    start = now.replace(day=1, hour=0, minute=0, second=0, microsecond=0)
    return int(start.timestamp()) * 1000


def _raw(text: str) -> bytes:
    if len(text) not in ID_LENGTHS:
        raise RecordError(f"message id {text!r} has {len(text)} characters, not 32 or 56")
    try:
        raw = bytes.fromhex(text)
    except ValueError as error:
        raise RecordError(f"message id {text!r} is not hex") from error
    if len(raw) * 2 != len(text):  # Python's reader skips spaces
        raise RecordError(f"message id {text!r} is not hex")
    return raw
