"""Column check: whether a table still has the columns that an archive writes. Pure.

Other writers may change the schema of a table. Files that lack a required column, or have one that
the table has dropped, would be committed without an error and read with rows incomplete.
"""

from typing import Final

import pyarrow as pa

from roquet.model.errors import ConfigError

_WIDER: Final = {pa.int32(): pa.int64(), pa.float32(): pa.float64()}
"""Types of files that tables may have widened."""


def check_columns(have: pa.Schema, want: pa.Schema, where: object) -> None:
    """Raise ConfigError unless a table has the wanted columns, and requires no other.

    `have` is the table's schema; libraries return texts and bytes in several types.
    """
    for field in want:
        at = have.get_field_index(field.name)
        if at < 0:
            raise ConfigError(
                f"{where} has no column {field.name!r} any more: another writer changed the table. "
                "Nothing was committed; add the column again, or archive to another place"
            )
        kind, wanted = _plain(have.field(at).type), _plain(field.type)
        if kind not in (wanted, _WIDER.get(wanted)):
            raise ConfigError(
                f"{where} has the column {field.name!r} as {kind} and not as {wanted}: another "
                "writer changed the table. Nothing was committed; archive to another place"
            )
    for field in have:
        if not field.nullable and field.name not in want.names:
            raise ConfigError(
                f"{where} requires a value in the column {field.name!r}, which no message has: "
                "make the column optional, or archive to another place"
            )


def _plain(kind: pa.DataType) -> pa.DataType:
    """A type without the differences between libraries."""
    if pa.types.is_map(kind):
        return pa.map_(_plain(kind.key_type), _plain(kind.item_type))
    if pa.types.is_large_string(kind) or pa.types.is_string_view(kind):
        return pa.string()
    if pa.types.is_large_binary(kind) or pa.types.is_binary_view(kind):
        return pa.binary()
    if pa.types.is_timestamp(kind) and kind.tz:
        return pa.timestamp(kind.unit, "UTC")
    return kind
