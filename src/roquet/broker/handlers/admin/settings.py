"""Settings of the broker, read and changed at run time."""

from typing import Final

from roquet.broker.access.access_control import AccessControl
from roquet.broker.control import ControlPlane
from roquet.broker.log.message_log import MessageLog
from roquet.broker.settings.settings_format import all_settings
from roquet.model.errors import CallRefused, FieldError
from roquet.net.address import host_of
from roquet.net.router import Peer
from roquet.wire.call import Reply
from roquet.wire.calls.admin.settings import GetSettings, SettingsReply, UpdateSettings
from roquet.wire.codes import ResponseCode
from roquet.wire.fastjson import codec
from roquet.wire.properties_file import read_properties, write_properties

OF_SUPER_USERS: Final = frozenset({"ha_replicas", "ha_plain_replicas"})
"""Settings by which a user who may change the cluster could get every message."""


class SettingsHandler:
    """Reads and changes settings."""

    __slots__ = ("_access", "_clock", "_log", "_settings")

    def __init__(self, log: MessageLog, control: ControlPlane, access: AccessControl) -> None:
        self._log, self._clock, self._settings = log, control.clock, control.settings
        self._access = access

    def update(self, call: UpdateSettings, _peer: Peer) -> Reply:
        """Change settings: all named ones, or none."""
        try:
            wanted = read_properties(call.body.decode())
        except (UnicodeDecodeError, FieldError) as error:
            raise CallRefused(
                ResponseCode.SYSTEM_ERROR, f"string2Properties error: {error}"
            ) from error
        kept = OF_SUPER_USERS.intersection(key.replace("-", "_") for key in wanted)
        if kept and not self._access.may_name_replicas(call.access_key or ""):
            raise CallRefused(
                ResponseCode.NO_PERMISSION, f"{min(kept)} can only be changed by super user"
            )
        self._settings.change(wanted, self._clock.now_ms())
        return Reply()

    def settings(self, _call: GetSettings, _peer: Peer) -> SettingsReply:
        """Return all settings, by Apache's keys where there are any."""
        ip = host_of(self._log.address)
        values = {"brokerIP1": ip, "brokerIP2": ip} | dict(all_settings(self._settings.config))
        return SettingsReply(
            version=codec.dumps(self._settings.version).decode(),
            body=write_properties(dict(sorted(values.items()))).encode(),
        )
