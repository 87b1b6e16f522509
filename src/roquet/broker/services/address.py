"""The address under which others reach this broker."""

import logging
import socket
from ipaddress import ip_address
from pathlib import Path
from typing import Final

from roquet.broker.config import BrokerConfig
from roquet.model.errors import ConfigError
from roquet.model.settings import join_address, parse_address

log = logging.getLogger(__name__)

LOOPBACK: Final = "127.0.0.1"
CONTAINER_SIGNS: Final = (Path("/.dockerenv"), Path("/run/.containerenv"))

ELSEWHERE: Final = ("192.0.2.1", 9)
"""An address of the documentation's net: asking the way there shows our own, and sends nothing."""


def advertised(config: BrokerConfig, port: int) -> str:
    """HOST:PORT to tell clients; `port` is the one that the broker listens on."""
    if config.advertise is not None:
        return join_address(*parse_address(config.advertise, "advertise", port=port))
    host = config.host if _is_particular(config.host) else routable_address()
    return join_address(host, port)


def warn_if_hidden(config: BrokerConfig, address: str) -> None:
    """Say that nobody outside a container can reach an address that was found inside it."""
    if config.advertise is None and in_container() and not address.startswith(f"{LOOPBACK}:"):
        log.warning(
            "this broker tells its clients to connect to %s, an address inside the container: "
            "say --advertise HOST:PORT if clients run elsewhere",
            address,
        )


def raw_host(address: str) -> bytes:
    """The address as records hold it: a name becomes the number it stands for."""
    host, port = parse_address(address)
    try:
        ip = ip_address(host)
    except ValueError:
        try:
            ip = ip_address(socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0][4][0])
        except OSError as error:
            raise ConfigError(
                f"advertise: the name {host!r} stands for no address: {error}"
            ) from None
    return ip.packed + port.to_bytes(4, "big")


def routable_address() -> str:
    """An address of this machine that others can reach, as far as it can tell."""
    try:
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as asking:
            asking.connect(ELSEWHERE)
            found = str(asking.getsockname()[0])
    except OSError:  # no way out of here
        found = _named_address()
    return found if _is_particular(found) else LOOPBACK


def in_container() -> bool:
    """Whether this process sees a container's network instead of the machine's."""
    return any(sign.exists() for sign in CONTAINER_SIGNS)


def _named_address() -> str:
    """What the machine's own name stands for."""
    try:
        return socket.gethostbyname(socket.gethostname())
    except OSError:
        return LOOPBACK


def _is_particular(host: str) -> bool:
    """Whether this names one interface: neither all of them nor nothing."""
    return host not in ("", "0.0.0.0", "::", "*")
