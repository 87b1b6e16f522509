"""Log fields: what a line about a request says besides its text, for collectors of logs."""

from collections.abc import Mapping
from typing import Final

from roquet.model.errors import FieldError
from roquet.wire.command import Command

_TOPIC_KEYS: Final = ("topic", "b")
_GROUP_KEYS: Final = ("consumerGroup", "producerGroup", "group", "a")
"""Header fields of requests that name a topic or group; the short ones are those of sends."""

NAME_LENGTH_MAX: Final = 255
"""Characters of a name in a log line: no topic or group has more, but a stranger's header may."""


def request_fields(command: Command, client: str) -> Mapping[str, object]:
    """The fields of a log call that is about a request; a malformed header names nothing."""
    found: dict[str, object] = {"client": client, "request": command.code}
    try:
        header = command.ext
    except FieldError:
        return found
    for field, keys in (("topic", _TOPIC_KEYS), ("group", _GROUP_KEYS)):
        if (name := next((header[key] for key in keys if key in header), None)) is not None:
            found[field] = name[:NAME_LENGTH_MAX]
    return found
