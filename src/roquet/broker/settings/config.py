"""BrokerConfig: the settings of a broker, read from broker.conf by our keys or Apache's.

A line is `key = value`. A key is ours (flush_interval, flush-interval) or Apache's
(flushIntervalCommitLog); our times and sizes carry a unit (500ms, 1GiB), Apache's are the bare
numbers that Java reads. An environment variable ROQUET_FLUSH_INTERVAL wins over the file.
"""

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from socket import gethostname
from typing import Any, Final

import msgspec

from roquet.broker.settings.apache_settings import unused_settings
from roquet.broker.settings.definitions import CHECKED, OWN_NAMES, PORT, SETTINGS, apache_keys
from roquet.log_records import logger
from roquet.model.config_check import CheckedConfig
from roquet.model.errors import ConfigError
from roquet.model.flags import Permission
from roquet.model.settings import parse_addresses, suggest
from roquet.model.topic import MASTER_ID, READ_WRITE
from roquet.net.channel import PLAIN, Security
from roquet.net.tls import ServerTls, Tls
from roquet.rules.delay.delay_levels import DEFAULT_LEVELS
from roquet.rules.delay.timer import MAX_DELAY_MS
from roquet.wire.calls.bodies import PULL

__all__ = ["PORT", "BrokerConfig", "lines", "load", "read"]

log = logger(__name__)

MESSAGE_SIZE_MAX: Final = 4 * 1024 * 1024
"""The genuine default for one message's body, or a whole batch."""

_READ: Final = int(Permission.READ)
_WRITE: Final = int(Permission.WRITE)
"""As plain numbers: every send and every pull reads them."""

ENVIRONMENT_PREFIX: Final = "ROQUET_"


class BrokerConfig(CheckedConfig, frozen=True, kw_only=True):
    """How one broker runs. Times are in ms, sizes in bytes."""

    broker_name: str = "broker-a"
    """The name under which name servers know this broker; read from a file it is the host's."""
    cluster_name: str = "DefaultCluster"
    """The cluster that it belongs to."""
    host: str = "0.0.0.0"
    """The interface to listen on."""
    port: int = PORT
    """0 takes any free one."""
    vip_port: bool = True
    """Whether the port two below answers as well, where clients older than 4.5.1 send to. When it
    cannot be had that is one warning; port 0 has none, since only a known port can be counted
    down from. Brokers side by side want ports three apart, as genuine ones do."""
    advertise: str | None = None
    """HOST[:PORT] that clients are told; None finds a routable address of this machine."""
    name_servers: tuple[str, ...] = ()
    """Whom it tells its topics, and asks where others' are; without any it serves alone."""
    store_dir: Path | None = None
    """None keeps everything in memory."""
    sync_flush: bool = False
    """Acknowledge only what is on the disk."""
    sync_flush_timeout: int = 5_000
    """A send that waits longer for the disk is told so: the message is stored all the same."""
    flush_interval: int = 500
    """How often the log is brought to the disk when nobody waits for it."""
    auto_create_topic: bool = True
    """Whether the first message to an unknown topic creates it."""
    auto_create_group: bool = True
    """Whether an unknown group may consume: it is created then."""
    default_queue_count: int = 8
    """Queues of a topic that its first message creates, at most."""
    max_message_size: int = MESSAGE_SIZE_MAX
    """The longest body of one message, or of a whole batch."""
    message_delay_levels: tuple[int, ...] = DEFAULT_LEVELS
    """How long each level waits: 1 is the first."""
    long_polling: bool = True
    """Whether a pull waits for messages as long as its client says, or `short_polling` at most."""
    short_polling: int = 1_000
    """How long a pull waits at most while `long_polling` is off."""
    notify_members: bool = True
    """Whether members of a group are told at once when another one comes or goes."""
    default_request_mode: str = PULL
    """Whether groups of which nobody said it pull or pop, when the broker divides their queues."""
    default_pop_share_queues: int = -1
    """Of how many others a popping member works on the queues; 0 and less: all on everything."""
    property_filter: bool = True
    """Whether consumers may filter by SQL92 expressions; the genuine broker's default is not to."""
    sql_compatibility: bool = False
    """Whether expressions that the genuine broker misreads are misread here, too, not refused."""
    trace_topic: bool = False
    """Whether there is a topic for message traces."""
    store_reply_messages: bool = True
    """Whether answers to requests are kept, too, once they are pushed to who waits."""
    reject_transactions: bool = False
    """Whether half messages are refused."""
    transaction_timeout: int = 6_000
    """A half message is not asked about before."""
    transaction_check_interval: int = 30_000
    """How often half messages without an end are asked about."""
    transaction_check_max: int = 15
    """Checks of one half message before it is given up."""
    transaction_op_interval: int = 500
    """How long an end may be noted in memory alone: a genuine broker that takes over after a kill
    would ask about it again. Theirs is 3,000."""
    transaction_op_size: int = 4_096
    """Bytes of such notes that are stored at once."""
    timer_max_delay: int = MAX_DELAY_MS
    """The farthest delivery time that a message may have."""
    recall_message: bool = False
    """Whether producers may take messages back before their delivery time."""
    permission: int = READ_WRITE
    """Permission of clients on this broker: 2 write, 4 read, 6 both, 0 nothing."""
    region: str = "DefaultRegion"
    """The name of the region that every answer to a send says, and every message sent alone."""
    read_internal_topics: bool = False
    """Whether clients may read messages that are not delivered yet where they wait: half messages
    (RMQ_SYS_TRANS_HALF_TOPIC and its op topic), delayed (SCHEDULE_TOPIC_XXXX) and timed ones
    (rmq_sys_wheel_timer). For an operator who inspects them; Apache RocketMQ always allows it."""
    pull_count_memory: int = 32
    """Messages in one reply to a pull, where they are likely to be in memory still. Clients in
    Python name limits of their own."""
    pull_bytes_memory: int = 256 * 1024
    """Bytes of such a reply; one message is given whatever its size."""
    pull_count_disk: int = 8
    """Messages in one reply to a pull, where they are likely to be read from the disk."""
    pull_bytes_disk: int = 64 * 1024
    """Bytes of such a reply."""
    memory_share: float = 0.4
    """The share of the machine's memory by which messages before the log's end are taken to be in
    memory: it decides which of these limits hold."""
    query_count_max: int = 64
    """Messages in one answer to a query by key."""
    recall_key_with_topic: bool = False
    """Whether a note that takes a timed message back names its topic in front of its key: a genuine
    broker that takes over the directory and has this set looks for both."""
    trace_on: bool = True
    """Whether clients are told, in answers and by messages, that they may send traces."""
    save_interval: int = 5_000
    """How often the groups' progress is saved."""
    register_interval: int = 30_000
    """How often name servers are told everything again: 10 s to 60 s."""
    client_silence: int = 120_000
    """A client that sends no heartbeat for so long is forgotten."""
    log_file_size: int = 1024 * 1024 * 1024
    """Bytes of one file of the log; a directory keeps the size that it was made with."""
    queue_file_entries: int = 300_000
    """Entries of one file of a queue, 20 bytes each; genuine settings count the bytes."""
    index_slots: int = 5_000_000
    """Hash slots of one file of the key index."""
    index_entries: int = 20_000_000
    """Keys that one file of the index holds."""
    retention: int = 72 * 3_600_000
    """How long messages are kept, read or not."""
    delete_hour: int = 4
    """The local hour of the day in which old files are deleted."""
    expire_ratio: float = 0.75
    """With so much of the disk in use old files are deleted at any hour."""
    force_ratio: float = 0.85
    """With so much of it in use the oldest files are deleted, whatever their age."""
    refuse_ratio: float = 0.90
    """With so much of it in use no message is taken."""
    free_min: int | None = None
    """Bytes that must stay free: judges the disk instead of the ratios."""
    send_capacity: int = 10_000
    """Sends that may wait for the disk; further ones are told that the broker is busy."""
    pull_capacity: int = 100_000
    """Pulls and pops that may wait for messages: each costs about 4 KB."""
    ack_capacity: int = 100_000
    """Acknowledgements that may wait."""
    heartbeat_capacity: int = 50_000
    """Heartbeats that may wait."""
    transaction_capacity: int = 100_000
    """Ends of transactions that may wait."""
    query_capacity: int = 20_000
    """Queries by key or id that may wait."""
    admin_capacity: int = 10_000
    """Everything else that may wait, for another client or a disk."""
    fast_failure: bool = True
    """Whether requests that waited too long behind others are told that the broker is busy."""
    send_wait_max: int = 200
    """The time within which a send is looked at, or refused."""
    pull_wait_max: int = 5_000
    """The time within which a pull is looked at, or refused."""
    ack_wait_max: int = 3_000
    """The time within which an acknowledgement is looked at, or refused."""
    heartbeat_wait_max: int = 31_000
    """The time within which a heartbeat is looked at, or refused."""
    transaction_wait_max: int = 3_000
    """The time within which the end of a transaction is looked at, or refused."""
    admin_wait_max: int = 5_000
    """The time within which any other request is looked at, or refused."""
    tls_cert: Path | None = None
    """The certificate that clients are shown; with it, connections are taken with TLS alone."""
    tls_key: Path | None = None
    """Its private key; None looks for it in the file of the certificate."""
    tls_client_ca: Path | None = None
    """Certificate authority of the certificates that clients must show; None asks for none."""
    tls_ca: Path | None = None
    """Certificate authority of name servers and other brokers; None calls without TLS."""
    server_side_reset: bool = True
    """Whether this broker moves a group's offsets itself; else it tells the members to."""
    unused: Mapping[str, str] = {}
    """Settings of Apache RocketMQ that have no effect here, as they were given: told again."""
    source: Path | None = None
    """The file that said all this: what is changed while the broker runs is written to it."""

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
    """The settings of a broker.conf; `source` names the file in errors."""
    found: dict[str, Any] = {"store_dir": Path.home() / "store", "broker_name": _default_name()}
    if servers := environ.get("NAMESRV_ADDR"):
        found["name_servers"] = parse_addresses(servers, "NAMESRV_ADDR")
    unused: dict[str, str] = {}
    for number, key, value in lines(text):
        where = f"{source} line {number}: {key}"
        if key in unused_settings():
            log.warning("%s: no effect here. %s", where, unused_settings()[key].reason)
            unused[key] = value
        else:
            found |= _setting(key, value, where)
    found["unused"] = unused
    for name, setting in SETTINGS.items():
        variable = ENVIRONMENT_PREFIX + name.upper()
        if given := environ.get(variable):
            found[name] = setting.parse(given, variable)
    _check_log_path(found.pop("log_path", None), found["store_dir"])
    return BrokerConfig(**found)


def load(path: Path, environ: Mapping[str, str]) -> BrokerConfig:
    """The settings of a file. Raises ConfigError."""
    try:
        found = read(path.read_text("utf-8"), str(path), environ)
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path}: cannot be read: {error}") from None
    return msgspec.structs.replace(found, source=path.resolve())


def _default_name() -> str:
    return gethostname() or "broker-a"


def lines(text: str) -> Iterator[tuple[int, str, str]]:
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
    """The setting of one line; empty for a key that only confirms a fixed value."""
    ours = key.replace("-", "_")
    if (setting := SETTINGS.get(ours)) is not None:
        return {ours: setting.parse(value, where)}
    if (name := OWN_NAMES.get(key)) is not None:
        setting = SETTINGS[name]
        return {name: (setting.parse_apache or setting.parse)(value, where)}
    if (check := CHECKED.get(key)) is not None:
        check(value, where)
        return {}
    hint = suggest(key, [*SETTINGS, *apache_keys()])
    raise ConfigError(f"{where}: unknown here and in Apache RocketMQ{hint}")


def _check_log_path(path: Path | None, store_dir: Path) -> None:
    if path is not None and path != store_dir / "commitlog":
        raise ConfigError(
            f"storePathCommitLog: the log lies in {store_dir / 'commitlog'}; "
            f"to use {path}, make that a link or leave the key out"
        )
