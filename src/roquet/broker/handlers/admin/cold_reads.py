"""Cold read limits: stored until a restart and returned, without effect on reads.

Codes and remarks are the genuine broker's, with a note in the remark.
"""

import re
from typing import Final

from roquet.broker.control import ControlPlane
from roquet.broker.settings.settings_format import all_settings
from roquet.broker.tables.broker_tables import BrokerTables
from roquet.model import names
from roquet.model.errors import CallRefused, FieldError, UsageError
from roquet.net.router import Peer
from roquet.wire.call import Reply
from roquet.wire.calls.admin.settings import (
    ColdReadLimitTable,
    GetColdReadLimits,
    RemoveColdReadLimit,
    SetColdReadLimits,
    SetReadAhead,
)
from roquet.wire.codes import ResponseCode
from roquet.wire.fastjson import codec
from roquet.wire.properties_file import read_properties

NO_EFFECT: Final = "without effect: reads here go through the page cache, which the kernel bounds"

READ_AHEAD_MODES: Final = frozenset({"0", "1"})

_NUMBER: Final = re.compile(r"-?\d{1,18}", re.ASCII)


class ColdReadsHandler:
    """Sets and lists the limits of cold reads."""

    __slots__ = ("_settings", "_tables")

    def __init__(self, tables: BrokerTables, control: ControlPlane) -> None:
        self._tables, self._settings = tables, control.settings

    def put_limits(self, call: SetColdReadLimits, _peer: Peer) -> Reply:
        """Store limits of groups."""
        try:
            wanted = read_properties(call.body.decode())
            self._tables.cold_read_limits.put({_group(k): _limit(v) for k, v in wanted.items()})
        except (FieldError, UnicodeDecodeError, UsageError) as error:
            raise CallRefused(
                ResponseCode.INVALID_PARAMETER, f"limits of groups: {error}"
            ) from error
        return Reply(remark=f"kept {NO_EFFECT}")

    def remove_limit(self, call: RemoveColdReadLimit, _peer: Peer) -> Reply:
        """Remove a group's limit."""
        self._tables.cold_read_limits.remove(call.body.decode("utf-8", "replace"))
        return Reply()

    def limits(self, _call: GetColdReadLimits, _peer: Peer) -> Reply:
        """Return all limits and those of the settings; reads are not counted."""
        settings = dict(all_settings(self._settings.config))
        table = ColdReadLimitTable(
            config_table=dict(self._tables.cold_read_limits.by_group),
            cg_cold_read_threshold=int(settings["cgColdReadThreshold"]),
            global_cold_read_threshold=int(settings["globalColdReadThreshold"]),
        )
        return Reply(body=codec.dumps(table))

    def read_ahead(self, call: SetReadAhead, _peer: Peer) -> Reply:
        """Accept a read-ahead mode."""
        mode = call.read_ahead_mode
        if mode in READ_AHEAD_MODES:
            return Reply(remark=f"set commitlog readahead mode success, mode: {mode}, {NO_EFFECT}")
        if _NUMBER.fullmatch(mode):
            raise CallRefused(
                ResponseCode.INVALID_PARAMETER,
                f"set commitlog readahead mode param value error: {mode} is neither 0 nor 1",
            )
        raise CallRefused(
            ResponseCode.SYSTEM_ERROR,
            f"set commitlog readahead mode failed: READ_AHEAD_MODE {mode!r} is no number",
        )


def _group(name: str) -> str:
    return names.check_group(name)


def _limit(text: str) -> int:
    if _NUMBER.fullmatch(text) is None:
        raise UsageError(f"{text[:40]!r} is no number of bytes")
    return int(text)
