"""Segments of conversations between a genuine master and its replicas, as they were captured."""

from pathlib import Path
from typing import NamedTuple

VECTORS = Path(__file__).parents[2] / "vectors" / "replication"


class Segment(NamedTuple):
    """One TCP segment."""

    sender: str
    size: int
    hex: str
    """Its bytes, or the first 64 of them with `...` behind."""

    @property
    def stream(self) -> bytes:
        """Its bytes; those that the capture left out are zeros."""
        return bytes.fromhex(self.hex.removesuffix("...")).ljust(self.size, b"\0")


def conversation(name: str) -> list[Segment]:
    """Segments of a captured conversation."""
    lines = (VECTORS / f"{name}.txt").read_text("ascii").splitlines()
    rows = [line.split() for line in lines if not line.startswith("#")]
    return [Segment(sender, int(size), text) for _, sender, size, text in rows]


def sent_by(name: str, sender: str) -> bytes:
    """Stream of one side of a captured conversation."""
    return b"".join(part.stream for part in conversation(name) if part.sender == sender)
