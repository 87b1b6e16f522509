"""The broker's settings, read and changed while it runs."""

from roquet.broker.broker import Broker
from roquet.broker.settings.settings_format import all_settings
from roquet.model.errors import CallRefused, FieldError
from roquet.net.router import Peer
from roquet.wire.call import Reply
from roquet.wire.calls.admin.settings import GetSettings, SettingsReply, UpdateSettings
from roquet.wire.codes import ResponseCode
from roquet.wire.fastjson import codec
from roquet.wire.properties_file import read_properties, write_properties


def update(broker: Broker, call: UpdateSettings, _peer: Peer) -> Reply:
    """Changes settings: all that are named, or none."""
    try:
        wanted = read_properties(call.body.decode())
    except (UnicodeDecodeError, FieldError) as error:
        raise CallRefused(ResponseCode.SYSTEM_ERROR, f"string2Properties error: {error}") from error
    broker.live.change(wanted, broker.clock.now_ms())
    return Reply()


def settings(broker: Broker, _call: GetSettings, _peer: Peer) -> SettingsReply:
    """All settings, in genuine words where there are any."""
    ip = broker.address.rpartition(":")[0].strip("[]")
    found = {"brokerIP1": ip, "brokerIP2": ip} | dict(all_settings(broker.config))
    return SettingsReply(
        version=codec.dumps(broker.live.version).decode(),
        body=write_properties(dict(sorted(found.items()))).encode(),
    )
