"""Settings of the controller, read and changed at run time; each controller has its own."""

from roquet.controller.controller import Controller
from roquet.controller.settings import BLACK_LIST, changed_settings, shown_settings
from roquet.log_records import logger
from roquet.model.errors import CallRefused, ConfigError, FieldError
from roquet.net.router import Peer
from roquet.wire.call import Reply
from roquet.wire.calls.controller import GetControllerSettings, UpdateControllerSettings
from roquet.wire.codes import ResponseCode
from roquet.wire.properties_file import read_properties, write_properties

log = logger(__name__)


def all_settings(controller: Controller, _call: GetControllerSettings, _peer: Peer) -> Reply:
    """All settings, under Apache's keys."""
    return Reply(body=write_properties(shown_settings(controller.config)).encode())


def update(controller: Controller, call: UpdateControllerSettings, peer: Peer) -> Reply:
    """Change settings until the next start: all of the requested ones, or none."""
    try:
        requested = read_properties(call.body.decode())
    except (UnicodeDecodeError, FieldError) as error:
        raise CallRefused(ResponseCode.SYSTEM_ERROR, f"string2Properties error: {error}") from error
    if not requested.keys().isdisjoint(BLACK_LIST):
        raise CallRefused(ResponseCode.NO_PERMISSION, "Can not update config in black list.")
    try:
        controller.configure(changed_settings(controller.config, requested))
    except ConfigError as error:
        raise CallRefused(ResponseCode.SYSTEM_ERROR, str(error)) from error
    log.info("%s changes settings: %s", peer.address, requested)
    return Reply()
