"""Settings of the broker, read and changed at run time, and limits of cold reads.

The genuine broker bounds the memory that a group's reads of old messages take. Reads here go
through the page cache, which the kernel bounds: such limits are stored until a restart and
returned, without effect. Codes and remarks are the genuine broker's, with a note in the remark.
"""

import re
from collections.abc import Mapping
from typing import Final

from roquet.broker.access.access_control import AccessControl
from roquet.broker.broker import BrokerComponent
from roquet.broker.control import ControlPlane
from roquet.broker.log.message_log import MessageLog
from roquet.broker.refusals import invalid_parameter, no_permission, system_error
from roquet.broker.settings.settings_format import all_settings
from roquet.broker.tables.broker_tables import BrokerTables
from roquet.model import names
from roquet.model.errors import FieldError, UsageError
from roquet.net.address import host_of
from roquet.net.router import Peer
from roquet.wire.call import Reply
from roquet.wire.calls.admin.settings import (
    ColdReadLimitTable,
    GetColdReadLimits,
    GetSettings,
    RemoveColdReadLimit,
    SetColdReadLimits,
    SetReadAhead,
    SettingsReply,
    UpdateSettings,
)
from roquet.wire.fastjson import codec
from roquet.wire.properties_file import read_properties, requested_settings, write_properties

OF_SUPER_USERS: Final = frozenset({"ha_replicas", "ha_plain_replicas"})
"""Settings by which a user who may change the cluster could get every message."""

NO_EFFECT: Final = "without effect: reads here go through the page cache, which the kernel bounds"

READ_AHEAD_MODES: Final = frozenset({"0", "1"})

_NUMBER: Final = re.compile(r"-?\d{1,18}", re.ASCII)

GROUPS_MAX: Final = 1_000
"""Groups with a limit: operators set few, and a table that clients can fill needs a bound."""


class SettingsHandler(BrokerComponent, frozen=True):
    """Reads and changes settings."""

    log: MessageLog
    tables: BrokerTables
    control: ControlPlane
    access: AccessControl

    def update(self, call: UpdateSettings, _peer: Peer) -> Reply:
        """Change settings: all named ones, or none."""
        requested = requested_settings(call.body)
        privileged = OF_SUPER_USERS.intersection(key.replace("-", "_") for key in requested)
        if privileged and not self.access.may_name_replicas(call.access_key or ""):
            raise no_permission(f"{min(privileged)} can only be changed by super user")
        self.control.settings.change(requested, self.control.clock.now_ms())
        return Reply()

    def settings(self, _call: GetSettings, _peer: Peer) -> SettingsReply:
        """Return all settings, by Apache's keys where there are any."""
        ip = host_of(self.log.address)
        values = {"brokerIP1": ip, "brokerIP2": ip} | dict(
            all_settings(self.control.settings.config)
        )
        return SettingsReply(
            version=codec.dumps(self.control.settings.version).decode(),
            body=write_properties(dict(sorted(values.items()))).encode(),
        )

    # -- limits of cold reads ------------------------------------------------------------------

    def put_limits(self, call: SetColdReadLimits, _peer: Peer) -> Reply:
        """Store limits of groups."""
        try:
            wanted = read_properties(call.body.decode())
            limits = {names.check_group(k): _limit(v) for k, v in wanted.items()}
            _put_limits(self.tables.cold_read_limits, limits)
        except (FieldError, UnicodeDecodeError, UsageError) as error:
            raise invalid_parameter(f"limits of groups: {error}") from error
        return Reply(remark=f"kept {NO_EFFECT}")

    def remove_limit(self, call: RemoveColdReadLimit, _peer: Peer) -> Reply:
        """Remove a group's limit."""
        self.tables.cold_read_limits.pop(call.body.decode("utf-8", "replace"), None)
        return Reply()

    def limits(self, _call: GetColdReadLimits, _peer: Peer) -> Reply:
        """Return all limits and those of the settings; reads are not counted."""
        settings = dict(all_settings(self.control.settings.config))
        table = ColdReadLimitTable(
            config_table=dict(self.tables.cold_read_limits),
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
            raise invalid_parameter(
                f"set commitlog readahead mode param value error: {mode} is neither 0 nor 1"
            )
        raise system_error(
            f"set commitlog readahead mode failed: READ_AHEAD_MODE {mode!r} is no number"
        )


def _put_limits(table: dict[str, int], limits: Mapping[str, int]) -> None:
    """Set limits, all of them or, raising UsageError, none."""
    count = len(table.keys() | limits.keys())
    if count > GROUPS_MAX:
        raise UsageError(f"limits of {count} groups: {GROUPS_MAX} are kept; remove some first")
    table.update(limits)


def _limit(text: str) -> int:
    if _NUMBER.fullmatch(text) is None:
        raise UsageError(f"{text[:40]!r} is no number of bytes")
    return int(text)
