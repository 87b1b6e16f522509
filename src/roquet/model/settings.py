"""Settings from text and environment: sizes (64MiB), times (10s), switches, numbers, addresses."""

import re
from collections.abc import Iterable
from typing import Final

from roquet.model.errors import ConfigError

_BYTES: Final = {
    "": 1,
    "b": 1,
    "kib": 1024,
    "mib": 1024**2,
    "gib": 1024**3,
    "kb": 1000,
    "mb": 1000**2,
    "gb": 1000**3,
}
_MILLIS: Final = {"ms": 1, "s": 1000, "m": 60_000, "min": 60_000, "h": 3_600_000, "d": 86_400_000}
_QUANTITY: Final = r"\s*(\d+(?:\.\d+)?)\s*([A-Za-z]*)\s*"


def parse_bytes(text: str, name: str = "size") -> int:
    """Parse a size into bytes: 64MiB is 67108864; a number without a unit is bytes."""
    return _parse(text, name, _BYTES, "bytes, KiB, MiB or GiB")


def parse_millis(text: str, name: str = "time") -> int:
    """Parse a time into ms: 10s is 10000; the unit is required."""
    return _parse(text, name, _MILLIS, "ms, s, m, h or d")


def parse_bool(text: str, name: str = "switch") -> bool:
    """Parse a switch: true, yes, on, 1 and their opposites."""
    match text.strip().lower():
        case "true" | "yes" | "on" | "1":
            return True
        case "false" | "no" | "off" | "0":
            return False
        case _:
            raise ConfigError(f"{name}: {text!r} is neither true nor false")


def parse_int(text: str, name: str = "number", *, least: int | None = None) -> int:
    """Parse a whole number, at least `least` if given."""
    try:
        value = int(text.strip())
    except ValueError:
        raise ConfigError(f"{name}: {text!r} is not a whole number") from None
    if least is not None and value < least:
        raise ConfigError(f"{name}: {value} is less than {least}")
    return value


def suggest(name: str, known: Iterable[str]) -> str:
    """Suggestion for a misspelt name: "; did you mean 'x'?", or the empty string."""
    lowered = {k.lower(): k for k in known}
    from difflib import get_close_matches  # here: only those who misspell need it

    close = get_close_matches(name.lower(), lowered, n=1, cutoff=0.6)
    return f"; did you mean {lowered[close[0]]!r}?" if close else ""


def parse_address(text: str, name: str = "address", *, port: int | None = None) -> tuple[str, int]:
    """Parse host:port or [v6]:port into host and port; `port` is the default if given."""
    if not isinstance(text, str):
        raise ConfigError(f"{name}: 'HOST:PORT', not {text!r:.100}")
    host, colon, tail = text.strip().rpartition(":")
    if not colon or tail.endswith("]"):
        host, tail = text.strip(), "" if port is None else str(port)
    if host.startswith("[") and host.endswith("]"):
        host = host[1:-1]
    if not host or "/" in host or not tail.isdecimal() or not 0 <= int(tail) <= 65_535:
        hint = ": leave out the scheme and the path" if "/" in text else ""
        if host and not tail and not hint:
            hint = ": the port is missing, a name server's is usually 9876"
        raise ConfigError(f"{name}: {text!r} is not HOST:PORT{hint}")
    return host, int(tail)


def parse_addresses(text: str, name: str = "addresses") -> tuple[str, ...]:
    """Parse a list a:1;b:2 (commas and blanks separate, too) and check each address."""
    parts = [part for part in re.split(r"[;,\s]+", text) if part]
    if not parts:
        raise ConfigError(f"{name}: no address given, expected HOST:PORT")
    return tuple(join_address(*parse_address(part, name)) for part in parts)


def join_address(host: str, port: int) -> str:
    """Format host and port; an IPv6 host is put into brackets."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def _parse(text: str, name: str, units: dict[str, int], wanted: str) -> int:
    match = re.fullmatch(_QUANTITY, text, re.ASCII)
    factor = units.get(match[2].lower()) if match else None
    if match is None or factor is None:
        raise ConfigError(f"{name}: {text!r} is not a number with a unit ({wanted})")
    from fractions import Fraction  # here: rarely needed, and slow to import

    return int(Fraction(match[1]) * factor)
