"""Open store: the state store that a controller's settings name.

memory                         nothing survives the process
file:DIR                       one controller
etcd:HOST:PORT[,HOST:PORT…]    two or more controllers
etcd+https:HOST:PORT[,…]       etcd that is called by TLS
"""

from pathlib import Path

from roquet.controller.config import ETCD_STORE, ETCD_TLS_STORE, MEMORY_STORE, ControllerConfig
from roquet.controller.state_store.interface import StateStore
from roquet.controller.state_store.memory import MemoryStore
from roquet.model.errors import ConfigError
from roquet.model.settings import parse_addresses
from roquet.net.tls import Tls


def open_store(config: ControllerConfig) -> StateStore:
    """Open the store. Raises ConfigError for an unknown kind, StoreError for unusable files."""
    kind, _, place = config.store.partition(":")
    if config.store == MEMORY_STORE:
        return MemoryStore()
    if kind == "file" and place:
        from roquet.controller.state_store.file import FileStore

        return FileStore(Path(place).expanduser())
    if kind in (ETCD_STORE, ETCD_TLS_STORE):
        tls = (config.etcd_tls or Tls()) if kind == ETCD_TLS_STORE else None
        return _etcd_store(parse_addresses(place, f"store: {kind}"), config.controllers, tls)
    raise ConfigError(
        f"store: {config.store!r} is none of memory, file:DIR, etcd:HOST:PORT[,HOST:PORT…] and "
        "etcd+https:HOST:PORT[,…]"
    )


def _etcd_store(addresses: tuple[str, ...], controllers: str, tls: Tls | None) -> StateStore:
    from roquet.controller.state_store.etcd import EtcdStore
    from roquet.controller.state_store.etcd_gateway import EtcdGateway

    if not controllers or "/" in controllers or not controllers.isprintable():
        raise ConfigError(f"controllerDLegerGroup: {controllers!r} cannot be a part of etcd's keys")
    return EtcdStore(EtcdGateway(addresses, tls), controllers)
