"""The name server's own settings, told and changed while it runs."""

import logging
from typing import Final

from msgspec.structs import replace

from roquet.model.errors import CallRefused, ConfigError, FieldError
from roquet.model.settings import parse_bool
from roquet.namesrv.config import NameServerConfig
from roquet.namesrv.state import State
from roquet.net.router import Peer
from roquet.wire.call import Reply
from roquet.wire.calls.namesrv import GetNameServerSettings, UpdateNameServerSettings
from roquet.wire.codes import ResponseCode
from roquet.wire.properties_file import read_properties, write_properties

log = logging.getLogger(__name__)

KEYS: Final = {
    "listenPort": "port",
    "bindAddress": "host",
    "scanNotActiveBrokerInterval": "scan_ms",
    "orderMessageEnable": "order_messages",
    "enableAllTopicList": "all_topics",
    "deleteTopicWithBrokerRegistration": "whole_registrations",
}
"""The genuine names of our settings."""

CHANGEABLE: Final = frozenset({"order_messages", "all_topics", "whole_registrations"})
"""What is looked up each time that it matters; the others are read at the start."""

BLACK_LIST: Final = ("configBlackList", "configStorePath", "kvConfigPath", "rocketmqHome")
"""What nobody may change over the network, as on genuine name servers: files would be written."""


def settings(state: State, _call: GetNameServerSettings, _peer: Peer) -> Reply:
    """All settings that genuine tools know."""
    told = {key: _text(getattr(state.config, name)) for key, name in KEYS.items()}
    told["configBlackList"] = ";".join(BLACK_LIST[:-1])
    return Reply(body=write_properties(told).encode())


def update(state: State, call: UpdateNameServerSettings, peer: Peer) -> Reply:
    """Changes settings until the next start: all of those that are given, or none."""
    try:
        given = read_properties(call.body.decode())
    except (UnicodeDecodeError, FieldError) as error:
        raise CallRefused(ResponseCode.SYSTEM_ERROR, f"string2Properties error: {error}") from error
    if not given.keys().isdisjoint(BLACK_LIST):
        raise CallRefused(ResponseCode.NO_PERMISSION, "Can not update config in black list.")
    state.config = _changed(state.config, given)
    log.info("%s changes settings: %s", peer.address, given)
    return Reply()


def _changed(config: NameServerConfig, given: dict[str, str]) -> NameServerConfig:
    """The settings with those that are given.

    Names that mean nothing to us are passed over, as on genuine name servers.
    """
    news: dict[str, bool] = {}
    for key, text in given.items():
        name = KEYS.get(key)
        if name in CHANGEABLE:
            news[name] = _switch(text, key)
        elif name is not None and text != _text(getattr(config, name)):
            raise CallRefused(
                ResponseCode.SYSTEM_ERROR, f"{key} is read at the start: it cannot be changed now"
            )
    return replace(config, **news)


def _switch(text: str, key: str) -> bool:
    try:
        return parse_bool(text, key)
    except ConfigError as error:
        raise CallRefused(ResponseCode.SYSTEM_ERROR, str(error)) from error


def _text(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
