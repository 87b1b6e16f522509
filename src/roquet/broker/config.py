"""BrokerConfig: what an operator sets, read from broker.conf in genuine or in our own words.

A line is `key = value`. A key is one of ours (flush_interval, flush-interval) or a genuine one
(flushIntervalCommitLog); our own times and sizes carry a unit (500ms, 1GiB), genuine ones are the
bare numbers that Java reads. An environment variable ROQUET_FLUSH_INTERVAL wins over the file.
"""

import logging
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from socket import gethostname
from typing import Any, Final

import msgspec

from roquet.broker.settings import CHECKED, OURS, PORT, SETTINGS, genuine_keys
from roquet.model.errors import ConfigError
from roquet.model.flags import Permission
from roquet.model.settings import nearest, parse_addresses
from roquet.model.topic import MASTER_ID, READ_WRITE
from roquet.net.channel import PLAIN, Security
from roquet.net.tls import ServerTls, Tls
from roquet.rules.schedule import DEFAULT_LEVELS
from roquet.wire.calls.bodies import PULL

__all__ = ["PORT", "BrokerConfig", "load", "read"]

log = logging.getLogger(__name__)

MESSAGE_SIZE_MAX: Final = 4 * 1024 * 1024
"""The genuine default for one message's body, or a whole batch."""

_READ: Final = int(Permission.READ)
_WRITE: Final = int(Permission.WRITE)
"""As plain numbers: every send and every pull asks."""

ENVIRONMENT_PREFIX: Final = "ROQUET_"


class BrokerConfig(msgspec.Struct, frozen=True, kw_only=True):
    """How one broker runs. Times are in ms, sizes in bytes."""

    broker_name: str = "broker-a"
    cluster_name: str = "DefaultCluster"
    host: str = "0.0.0.0"
    """The interface to listen on."""
    port: int = PORT
    """0 takes any free one."""
    advertise: str | None = None
    """HOST[:PORT] that clients are told; None finds a routable address of this machine."""
    name_servers: tuple[str, ...] = ()
    store_dir: Path | None = None
    """None keeps everything in memory."""
    sync_flush: bool = False
    """Acknowledge only what is on the disk."""
    sync_flush_timeout: int = 5_000
    flush_interval: int = 500
    auto_create_topic: bool = True
    auto_create_group: bool = True
    default_queue_count: int = 8
    max_message_size: int = MESSAGE_SIZE_MAX
    message_delay_levels: tuple[int, ...] = DEFAULT_LEVELS
    """How long each level waits: 1 is the first."""
    long_polling: bool = True
    notify_members: bool = True
    default_request_mode: str = PULL
    """Whether groups of which nobody said it pull or pop, when the broker divides their queues."""
    default_pop_share_queues: int = -1
    """Of how many others a popping member works on the queues; 0 and less: all on everything."""
    trace_topic: bool = False
    store_reply_messages: bool = True
    """Whether answers to requests are kept, too, once they are pushed to who waits."""
    permission: int = READ_WRITE
    region: str = "DefaultRegion"
    save_interval: int = 5_000
    register_interval: int = 30_000
    client_silence: int = 120_000
    log_file_size: int = 1024 * 1024 * 1024
    queue_file_entries: int = 300_000
    index_slots: int = 5_000_000
    index_entries: int = 20_000_000
    retention: int = 72 * 3_600_000
    delete_hour: int = 4
    expire_ratio: float = 0.75
    force_ratio: float = 0.85
    refuse_ratio: float = 0.90
    free_min: int | None = None
    """Bytes that must stay free: judges the disk instead of the ratios."""
    tls_cert: Path | None = None
    """The certificate that clients are shown; with it, connections are taken with TLS alone."""
    tls_key: Path | None = None
    """Its private key; None looks for it in the file of the certificate."""
    tls_client_ca: Path | None = None
    """Who signs the certificates that clients must show; None asks for none."""
    tls_ca: Path | None = None
    """Who signs the certificates of name servers and other brokers; None calls without TLS."""

    @property
    def server_tls(self) -> ServerTls | None:
        """How connections are taken; None without TLS."""
        if self.tls_cert is None:
            return None
        return ServerTls(cert=self.tls_cert, key=self.tls_key, client_ca=self.tls_client_ca)

    def calls(self) -> Security:
        """How this broker calls name servers and other brokers."""
        if self.tls_ca is None:
            return PLAIN
        return Security(context=Tls(ca=self.tls_ca, cert=self.tls_cert, key=self.tls_key).context())

    @property
    def broker_id(self) -> int:
        """The master's: replicas come with their own issue."""
        return MASTER_ID

    @property
    def readable(self) -> bool:
        """Whether consumers may read at all."""
        return self.permission & _READ != 0

    @property
    def writable(self) -> bool:
        """Whether producers may write at all."""
        return self.permission & _WRITE != 0


def read(text: str, source: str, environ: Mapping[str, str]) -> BrokerConfig:
    """The settings of a broker.conf; `source` names it in what goes wrong."""
    found: dict[str, Any] = {"store_dir": Path.home() / "store", "broker_name": _default_name()}
    if servers := environ.get("NAMESRV_ADDR"):
        found["name_servers"] = parse_addresses(servers, "NAMESRV_ADDR")
    for number, key, value in _lines(text):
        found |= _setting(key, value, f"{source} line {number}: {key}")
    for name, setting in SETTINGS.items():
        variable = ENVIRONMENT_PREFIX + name.upper()
        if given := environ.get(variable):
            found[name] = setting.parse(given, variable)
    _check_log_path(found.pop("log_path", None), found["store_dir"])
    return BrokerConfig(**found)


def load(path: Path, environ: Mapping[str, str]) -> BrokerConfig:
    """The settings of a file."""
    try:
        return read(path.read_text("utf-8"), str(path), environ)
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path}: cannot be read: {error}") from None


def _default_name() -> str:
    return gethostname() or "broker-a"


def _lines(text: str) -> Iterator[tuple[int, str, str]]:
    """Number, key and value of each line of a Java properties file."""
    pending, began = "", 0
    for number, line in enumerate(text.splitlines(), 1):
        began = began if pending else number
        pending += line.strip()
        if pending.endswith("\\"):
            pending = pending[:-1]
            continue
        if pending and pending[0] not in "#!":
            key, _, value = _split(pending)
            yield began, key.strip(), re.sub(r"\\([:=#!])", r"\1", value.strip())
        pending = ""


def _split(line: str) -> tuple[str, str, str]:
    match = re.search(r"(?<!\\)[=:]", line)
    return line.partition(match[0] if match else " ")


def _setting(key: str, value: str, where: str) -> dict[str, Any]:
    """What one line sets: nothing, when the genuine broker alone knows the key."""
    ours = key.replace("-", "_")
    if (setting := SETTINGS.get(ours)) is not None:
        return {ours: setting.parse(value, where)}
    if (name := OURS.get(key)) is not None:
        setting = SETTINGS[name]
        return {name: (setting.parse_genuine or setting.parse)(value, where)}
    if (check := CHECKED.get(key)) is not None:
        check(value, where)
        return {}
    genuine = genuine_keys()
    if key not in genuine:
        hint = nearest(key, [*SETTINGS, *genuine])
        raise ConfigError(f"{where}: unknown here and in Apache RocketMQ{hint}")
    log.warning("%s: a key of Apache RocketMQ that has no effect here", where)
    return {}


def _check_log_path(path: Path | None, store_dir: Path) -> None:
    if path is not None and path != store_dir / "commitlog":
        raise ConfigError(
            f"storePathCommitLog: the log lies in {store_dir / 'commitlog'}; "
            f"to use {path}, make that a link or leave the key out"
        )
