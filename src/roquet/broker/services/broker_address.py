"""Broker address: the host and port that clients are told, and its encoding in records."""

import logging
import socket
from ipaddress import ip_address
from pathlib import Path
from typing import Final

from roquet.broker.settings.config import BrokerConfig
from roquet.log_records import logger
from roquet.model.errors import ConfigError
from roquet.model.settings import join_address, parse_address
from roquet.net.address import LOOPBACK, is_specific, routable_address
from roquet.rules.replication.acknowledgement import BrokerRole

log = logger(__name__)

CONTAINER_SIGNS: Final = (Path("/.dockerenv"), Path("/run/.containerenv"))


def advertised_address(config: BrokerConfig, port: int) -> str:
    """HOST:PORT that clients are told; `port` is the one that the broker listens on."""
    if config.advertise is not None:
        return join_address(*parse_address(config.advertise, "advertise", port=port))
    host = config.host if is_specific(config.host) else routable_address()
    return join_address(host, port)


def warn_of_container_address(config: BrokerConfig, address: str) -> None:
    """Warn that clients outside a container cannot reach an address found inside it."""
    if config.advertise is None and in_container() and not address.startswith(f"{LOOPBACK}:"):
        log.warning(
            "this broker tells its clients to connect to %s, an address inside the container: "
            "say --advertise HOST:PORT if clients run elsewhere",
            address,
        )


def warn_of_open_broker(config: BrokerConfig, address: str) -> None:
    """Warn that whoever reaches a broker may do everything there.

    Nothing is said if it listens on one interface, checks users or asks for certificates.
    """
    is_closed = config.authentication_enabled or config.requires_certificates
    if is_closed or is_specific(config.host):
        return
    log.warning(
        "everybody who reaches %s may do everything there: this broker listens on all interfaces "
        "and checks no users; set authenticationEnabled=true, or bindAddress to one interface",
        address,
    )


def warn_of_refused_replicas(config: BrokerConfig, port: int) -> None:
    """Say that replicas on other machines get no log, or that strangers do, by port for replicas.

    With access control they get none unless they prove who they are, their addresses are named or
    certificates are required. A warning where replicas are to be expected: roles change, or a
    master waits for them.
    """
    if not port or config.ha_replicas or config.ha_plain_replicas or _is_loopback(config.host):
        return
    expects_replicas = config.controller_mode or config.broker_role is not BrokerRole.ASYNC_MASTER
    level = logging.WARNING if expects_replicas else logging.INFO
    if not config.serves_any_replica:
        log.log(
            level,
            "only replicas on this machine may connect to port %d for the log: with access control"
            " all brokers of the group have to have innerClientAuthenticationCredentials, or the"
            " addresses of others to be in ha_replicas, or certificates be required"
            " (tls_client_ca)",
            port,
        )
    elif config.server_tls and not (config.proves_replicas or config.requires_certificates):
        log.log(
            level,
            "whoever reaches port %d gets the log, and may say that it is a replica: set"
            " innerClientAuthenticationCredentials, or require certificates (tls_client_ca)",
            port,
        )


def _is_loopback(host: str) -> bool:
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def encode_address(address: str) -> bytes:
    """An address as records store it; a host name is resolved. ConfigError if it cannot be."""
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


def in_container() -> bool:
    """Whether this process runs in a container."""
    return any(sign.exists() for sign in CONTAINER_SIGNS)
