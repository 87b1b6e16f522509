"""Master tables: asks the master of a group for its tables, each whole and checked, or not at all.

    21 60 61         the master's port less 2, or the plain port where that one is refused
    43 45 201 402    the plain port

Apache's replicas ask at these ports, and so do ours: the first port is served by threads of its own
in Apache's broker, which a rush of pulls does not hold up.
"""

from collections.abc import Awaitable, Callable, Mapping, Set
from functools import partial
from typing import Final, Generic, TypeVar

import msgspec

from roquet.broker.settings.config import BrokerConfig
from roquet.broker.tables.delay_offsets import DelayOffsetTable
from roquet.broker.tables.request_modes import RequestModeTable
from roquet.model import names
from roquet.model.errors import CallRefused, ConnectFailed, FieldError, UsageError
from roquet.model.settings import join_address
from roquet.model.topic import DataVersion, GroupTable, SubscriptionGroup, TopicConfig
from roquet.net.address import split_address
from roquet.net.pool import ChannelPool
from roquet.net.threads import in_thread
from roquet.rules.replication.table_copy import (
    MasterTopics,
    is_legal_topic,
    legal_delay_offsets,
    legal_forbidden,
    legal_groups,
    legal_offsets,
    legal_tombstones,
    legal_topics,
)
from roquet.store.timer.layout import CHECKPOINT, TimerCheckpoint, unpack_checkpoint
from roquet.wire.call import Call, Reply
from roquet.wire.calls.admin.inspection import (
    AllOffsets,
    GetAllOffsets,
    GetDelayOffsets,
    GetRequestModes,
)
from roquet.wire.calls.admin.settings import GetSettings
from roquet.wire.calls.admin.stats import GetHaStatus, HaStatus
from roquet.wire.calls.admin.topic import GetGroups, GetTopics
from roquet.wire.calls.bodies import POP, PULL, RequestMode, TopicsOfBroker
from roquet.wire.calls.timer import GetTimerCheckpoint, GetTimerMetrics, TimerMetricsBody
from roquet.wire.codes import ResponseCode
from roquet.wire.fastjson import codec
from roquet.wire.properties_file import read_properties
from roquet.wire.replication.table_editions import TableEditions, parse_editions

R = TypeVar("R", bound=Reply)
T = TypeVar("T")
B = TypeVar("B")

FAST_PORT_BELOW: Final = 2
"""How far below a broker's port its fast port is."""

TIMEOUT_MS: Final = 3_000
LONG_TIMEOUT_MS: Final = 30_000
"""Timeouts of Apache's replicas: the long one is for topics and groups, of which there are many."""

PAGE_ROWS: Final = 1_000
"""Topics or groups of one page: some hundred kilobytes."""

ROWS_MAX: Final = 1_000_000
"""Topics or groups of a broker: a page that says there are more is not believed."""

RESTARTS_MAX: Final = 10
"""How often a table may change while its pages are read; then it is tried again later."""

SMALL_BYTES: Final = 64 * 1024
"""Longest body decoded on the event loop, in about a millisecond."""

BODY_BYTES_MAX: Final = 16 * 1024 * 1024
"""Longest body that is decoded, as long as the longest frame."""

IDENTITY: Final = ("brokerClusterName", "brokerName", "brokerId")


class MasterIdentity(msgspec.Struct, frozen=True):
    """Which broker of which group answers at an address."""

    cluster: str
    name: str
    broker_id: int
    stream_port: int | None = None
    """Port of its stream (haListenPort); 0: the one above its own; None: it does not say."""

    def fault(self, config: BrokerConfig, own_id: int) -> str | None:
        """Why it cannot be the master of a replica with these settings; None when it can."""
        cluster, name = config.cluster_name, config.broker_name
        if (self.cluster, self.name) != (cluster, name):
            return (
                f"the master is broker {self.name} of cluster {self.cluster}, this is {name} of"
                f" {cluster}"
            )
        return "the master is this broker itself" if self.broker_id == own_id else None


class MasterOffsets(msgspec.Struct, frozen=True, kw_only=True):
    """Progress of groups, and how far the master's log reached when it was read."""

    rows: Mapping[str, Mapping[int, int]]
    version: DataVersion | None
    editions: TableEditions | None
    """None from a broker that reports no changes."""
    log_end: int | None
    """None from a broker that does not say it with the offsets."""


class TablePage(msgspec.Struct, Generic[B], frozen=True):
    """One page of a table."""

    rows: Set[str]
    """Names of its rows."""
    total: int | None
    """Number of rows of all pages; None from an old broker, which gives everything at once."""
    version: DataVersion
    body: B


class MasterTables:
    """Asks one master. Raises CallError, or FieldError for an answer that cannot be right."""

    def __init__(self, pool: ChannelPool, address: str) -> None:
        self.address = address
        self._pool = pool
        self._fast: str | None = _fast_address(address)
        """Address of the fast port; None once it was refused."""

    async def identity(self) -> MasterIdentity:
        """Ask which broker this is."""
        reply = await self._plain_call(GetSettings())
        try:
            settings = read_properties(reply.body.decode())  # which has a limit of its own
            cluster, name, broker_id = (settings[key] for key in IDENTITY)
            port = settings.get("haListenPort")
            return MasterIdentity(
                cluster, name, int(broker_id), None if port is None else int(port)
            )
        except (KeyError, ValueError) as error:
            raise FieldError(f"{self.address} does not say which broker it is: {error}") from error

    async def log_end(self) -> int:
        """Ask where the log ends; a broker that leads no more does not say it."""
        status = await _decoded((await self._plain_call(GetHaStatus())).body, HaStatus)
        if not status.master:
            raise FieldError(f"{self.address} is not the master now")
        if status.master_commit_log_max_offset < 0:
            raise FieldError(f"a log cannot end at {status.master_commit_log_max_offset}")
        return status.master_commit_log_max_offset

    async def follower_end(self) -> int:
        """Ask a replica where its log ends; a broker that is none has no such end."""
        status = await _decoded((await self._plain_call(GetHaStatus())).body, HaStatus)
        follower = status.ha_client_runtime_info
        if status.master or follower is None or follower.max_offset < 0:
            raise FieldError(f"{self.address} does not say where its log ends as a replica")
        return follower.max_offset

    async def topics(self, log_end: int) -> MasterTopics:
        """Ask for all topics; `log_end` is where the log ended before."""

        async def ask(first: int, version: str | None) -> TablePage[TopicsOfBroker]:
            call = GetTopics(topic_seq=first, max_topic_num=PAGE_ROWS, data_version=version)
            reply = await self._fast_call(call, LONG_TIMEOUT_MS)
            body = await _decoded(reply.body, TopicsOfBroker)
            rows = body.topic_config_table.keys()
            return TablePage(rows, reply.total_topic_num, body.data_version, body)

        pages = await _all_pages(ask)
        configs: dict[str, TopicConfig] = {}
        ids: dict[str, str] | None = None
        deleted: dict[str, int] | None = None
        for body in pages:
            configs |= body.topic_config_table
            ids = _joined(ids, body.topic_ids)
            deleted = _joined(deleted, body.deleted_topics)
        if deleted and max(deleted.values()) > log_end:
            log_end = await self.log_end()
        return MasterTopics(
            configs=legal_topics(configs),
            version=pages[0].data_version,
            ids=ids,
            deleted=None if deleted is None else legal_tombstones(deleted, log_end),
        )

    async def groups(self) -> GroupTable:
        """Ask for all groups."""

        async def ask(first: int, version: str | None) -> TablePage[GroupTable]:
            call = GetGroups(group_seq=first, max_group_num=PAGE_ROWS, data_version=version)
            reply = await self._plain_call(call, LONG_TIMEOUT_MS)
            body = await _decoded(reply.body, GroupTable)
            rows = body.subscription_group_table.keys()
            return TablePage(rows, reply.total_group_num, body.data_version, body)

        pages = await _all_pages(ask)
        configs: dict[str, SubscriptionGroup] = {}
        forbidden: dict[str, dict[str, int]] = {}
        for body in pages:
            configs |= body.subscription_group_table
            forbidden |= body.forbidden_table
        return GroupTable(
            subscription_group_table=legal_groups(configs),
            forbidden_table=legal_forbidden(forbidden),
            data_version=pages[0].data_version,
        )

    async def offsets(
        self, known: TableEditions | None, wait_ms: int, copied: TableEditions | None = None
    ) -> MasterOffsets:
        """Ask for the progress of groups: what has changed since `known`, as soon as there is any.

        Waits for at most `wait_ms` at a broker of ours, which may wait in turn until this replica
        says by `copied` that it has a table; any other one gives everything at once.
        """
        call = GetAllOffsets(
            known_editions="" if known is None else known.text,
            copied_editions=None if copied is None else copied.text,
            wait_millis=wait_ms,
        )
        reply = await self._plain_call(call, TIMEOUT_MS + wait_ms)
        body = await _decoded(reply.body, AllOffsets)
        return MasterOffsets(
            rows=legal_offsets(body.offset_table),
            version=body.data_version,
            editions=parse_editions(reply.editions or ""),
            log_end=None if (reply.log_end or 0) < 0 else reply.log_end,
        )

    async def delay_offsets(self) -> DelayOffsetTable:
        """Ask for the progress of delay levels."""
        reply = await self._plain_call(GetDelayOffsets())
        table = await _decoded(reply.body, DelayOffsetTable)
        return msgspec.structs.replace(table, offset_table=legal_delay_offsets(table.offset_table))

    async def request_modes(self) -> RequestModeTable:
        """Ask which groups pull and which pop."""
        reply = await self._plain_call(GetRequestModes())
        table = await _decoded(reply.body, RequestModeTable)
        return RequestModeTable(
            message_request_mode_map=_legal_modes(table.message_request_mode_map)
        )

    async def timer_checkpoint(self) -> TimerCheckpoint:
        """Ask how far the timer is."""
        body = (await self._fast_call(GetTimerCheckpoint())).body
        checkpoint = unpack_checkpoint(body)
        if len(body) < CHECKPOINT.size or min(checkpoint.read_ms, checkpoint.master_offset) < 0:
            raise FieldError(f"{len(body)} bytes are no checkpoint of a timer")
        return checkpoint

    async def timer_metrics(self) -> TimerMetricsBody:
        """Ask how many timed messages wait."""
        return await _decoded((await self._fast_call(GetTimerMetrics())).body, TimerMetricsBody)

    async def _plain_call(self, call: Call[R], timeout_ms: int = TIMEOUT_MS) -> R:
        return await self._pool.call(self.address, call, timeout_ms)

    async def _fast_call(self, call: Call[R], timeout_ms: int = TIMEOUT_MS) -> R:
        """Call at the fast port; at the plain one once that was refused, or is another server's."""
        if self._fast is not None:
            try:
                return await self._pool.call(self._fast, call, timeout_ms)
            except ConnectFailed:
                self._fast = None
            except CallRefused as error:
                if error.code != ResponseCode.REQUEST_CODE_NOT_SUPPORTED:
                    raise
                self._fast = None  # another server listens there
        return await self._plain_call(call, timeout_ms)


def _fast_address(address: str) -> str | None:
    """The address of the fast port; None for a port, or a text, that has none."""
    try:
        host, port = split_address(address)
    except UsageError:  # the first call says so
        return None
    return join_address(host, port - FAST_PORT_BELOW) if port > FAST_PORT_BELOW else None


def _legal_modes(
    table: Mapping[str, Mapping[str, RequestMode]],
) -> dict[str, dict[str, RequestMode]]:
    """Request modes by topic and group, of the two that there are."""
    legal = {
        topic: {
            group: mode
            for group, mode in groups.items()
            if names.group_fault(group) is None and mode.mode in (PULL, POP)
        }
        for topic, groups in table.items()
        if is_legal_topic(topic)
    }
    return {topic: groups for topic, groups in legal.items() if groups}


def _joined(rows: dict[str, T] | None, more: dict[str, T] | None) -> dict[str, T] | None:
    return rows if more is None else (rows or {}) | more


async def _all_pages(ask: Callable[[int, str | None], Awaitable[TablePage[B]]]) -> list[B]:
    """The bodies of all pages of one version of a table.

    A table that changes meanwhile is read from its first page again. Raises FieldError for pages
    that do not add up, or never end.
    """
    for _ in range(RESTARTS_MAX):
        if (bodies := await _pages_of_one_version(ask)) is not None:
            return bodies
    raise FieldError(f"the table changed {RESTARTS_MAX} times while it was read")


async def _pages_of_one_version(
    ask: Callable[[int, str | None], Awaitable[TablePage[B]]],
) -> list[B] | None:
    """The bodies of all pages; None if the table changed meanwhile."""
    page = first = await ask(0, None)
    bodies, rows = [page.body], set(page.rows)
    version = codec.dumps(first.version).decode()
    while page.total is not None and len(rows) < page.total:
        if not page.rows:
            raise FieldError(f"a table of {page.total} rows ends after {len(rows)}")
        page = await ask(len(rows), version)
        if page.version != first.version:
            return None
        if page.total != first.total or not rows.isdisjoint(page.rows):
            raise FieldError("pages of one version of a table disagree")
        bodies.append(page.body)
        rows |= page.rows
        if len(rows) > ROWS_MAX:
            raise FieldError(f"a table has more than {ROWS_MAX} rows")
    if page.total is not None and len(rows) != page.total:
        raise FieldError(f"a table of {page.total} rows has {len(rows)}")
    return bodies


async def _decoded(body: bytes, wanted: type[T]) -> T:
    """Decode a body, a large one in a thread. Raises FieldError."""
    if len(body) > BODY_BYTES_MAX:
        raise FieldError(f"a body of {len(body)} bytes: the limit is {BODY_BYTES_MAX}")
    if len(body) <= SMALL_BYTES:
        return codec.loads(body, wanted)
    return await in_thread(partial(codec.loads, body, wanted))
