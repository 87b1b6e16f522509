"""Request bodies: a peer's JSON, decoded within limits of size and number of values.

    strict JSON   up to 1 MiB and 131,072 values, decoded in C: some 25 ms at worst
    loose JSON    up to 256 KiB and 10,000 values, parsed in Python: as long

A server decodes on the thread that serves everybody, so the limits are checked first, by searching
for single bytes. Our own files are read by `fastjson.codec.loads`, which has no limits.
"""

from typing import Final, TypeVar

import msgspec

from roquet.model.errors import FieldError
from roquet.wire.fastjson import codec

T = TypeVar("T")

STRICT_SIZE_MAX: Final = 1024 * 1024
"""Bytes: a request to lock all 16,384 queues that a topic may have on a broker fits."""

STRICT_VALUES_MAX: Final = 128 * 1024
"""Values in such a body; that request has 115,000."""

LOOSE_SIZE_MAX: Final = 256 * 1024
"""Bytes of a body that is not strict JSON. Apache's clients write such bodies for maps with numbers
as keys, for null in the place of a list and for numbers in the place of names."""

LOOSE_VALUES_MAX: Final = 10_000
"""Values in such a body: each takes one to three microseconds."""

_VALUE_ENDS: Final = (b",", b"[", b"{", b":")
"""Each value but the first follows one of these; those within texts are counted as well."""


def decode_body(body: bytes, wanted: type[T]) -> T:
    """Decode a request's body.

    Raises FieldError for a body that is over a limit, broken or ill-typed.
    """
    size = len(body)
    if size > STRICT_SIZE_MAX:
        raise _too_large(f"{size} bytes", f"{STRICT_SIZE_MAX} bytes")
    values = sum(map(body.count, _VALUE_ENDS)) if size > LOOSE_VALUES_MAX else 0
    if values > STRICT_VALUES_MAX:
        raise _too_large(f"{values} values", f"{STRICT_VALUES_MAX} values")
    if size <= LOOSE_SIZE_MAX and values <= LOOSE_VALUES_MAX:
        return codec.loads(body, wanted)
    try:
        return codec.loads_strictly(body, wanted)
    except (msgspec.MsgspecError, UnicodeError, RecursionError) as error:
        raise FieldError(
            f"a body of {size} bytes and {values} values has to be strict JSON of the right types: "
            f"over {LOOSE_SIZE_MAX} bytes or {LOOSE_VALUES_MAX} values no other is read; {error}"
        ) from error


def _too_large(size: str, limit: str) -> FieldError:
    return FieldError(f"the body has {size}, the limit is {limit}: send it in several requests")
