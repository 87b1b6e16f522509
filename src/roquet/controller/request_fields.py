"""Request fields: names, addresses and ids that a controller accepts from brokers and operators."""

from typing import Final

from roquet.model.errors import CallRefused
from roquet.rules.election.group import FIRST_ID
from roquet.wire.codes import ResponseCode

TEXT_SIZE_MAX: Final = 255
"""Characters of a name, an address or a check code: a group's state stays small."""


def check_texts(**texts: str) -> None:
    """CallRefused for a text that is empty, too long or has unprintable characters."""
    for name, text in texts.items():
        if not text or len(text) > TEXT_SIZE_MAX or not text.isprintable():
            raise CallRefused(
                ResponseCode.CONTROLLER_INVALID_REQUEST,
                f"{name}: {text[:40]!r} of {len(text)} characters is not a text of 1 to"
                f" {TEXT_SIZE_MAX} printable ones",
            )


def check_cluster(name: str) -> None:
    """CallRefused for the name of a cluster that is too long or unprintable; empty is not said."""
    if name:
        check_texts(clusterName=name)


def check_broker_id(broker_id: int) -> None:
    """CallRefused for an id that no broker can have."""
    if broker_id < FIRST_ID:
        raise CallRefused(
            ResponseCode.CONTROLLER_INVALID_REQUEST,
            f"broker id {broker_id}: a controller gives ids from {FIRST_ID} on",
        )


def broker_ids(text: str) -> frozenset[int]:
    """Ids of a list like `1;2`; CallRefused for any other text."""
    parts = [part.strip() for part in text.split(";") if part.strip()]
    if not all(part.isdecimal() and len(part) < 19 for part in parts):
        raise CallRefused(
            ResponseCode.CONTROLLER_INVALID_REQUEST,
            f"broker ids {text[:40]!r}: expected numbers separated by semicolons",
        )
    return frozenset(map(int, parts))
