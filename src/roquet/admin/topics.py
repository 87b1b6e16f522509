"""Topics: their queues and settings; created, changed and deleted on all brokers."""

import asyncio
from collections.abc import Iterator, Mapping, Sequence
from typing import Final, TypeVar

import msgspec

from roquet.admin.client import (
    AdminClient,
    failures_text,
    fault_lines,
    leader_addresses,
    outcomes,
    without_answers,
)
from roquet.model import names
from roquet.model.errors import CallError, RoquetError, UsageError
from roquet.model.flags import Permission
from roquet.model.route import QueueData
from roquet.model.settings import suggest
from roquet.model.topic import READ_WRITE, TopicConfig
from roquet.wire.call import Reply
from roquet.wire.calls.admin.inspection import GetGroupsOfTopic, GetSystemTopics, GroupList
from roquet.wire.calls.admin.namesrv import ForgetTopic
from roquet.wire.calls.admin.stats import GetTopicStats, TopicStats
from roquet.wire.calls.admin.topic import CreateTopic, DeleteTopic, GetTopic
from roquet.wire.calls.bodies import TopicList
from roquet.wire.calls.offset import MaxOffset, MinOffset
from roquet.wire.codes import ResponseCode
from roquet.wire.fastjson import codec

DEFAULT_QUEUES: Final = 8
"""Queues of a new topic on each broker, as in a topic that a broker creates by itself."""

REGISTRATION_WAIT_MS: Final = 5_000
"""How long a change may take to reach the name servers: brokers register it at once, but not all do
so before they answer."""

REGISTRATION_POLL_MS: Final = 50

T = TypeVar("T")


class TopicBrokerInfo(msgspec.Struct, frozen=True, kw_only=True):
    """A topic on one broker."""

    broker: str
    read_queues: int
    write_queues: int
    permission: str
    """R, W or RW; a dash for neither."""
    order: bool | None = None
    """None, as `attributes`, when the broker does not report it."""
    attributes: dict[str, str] | None = None


class TopicQueueInfo(msgspec.Struct, frozen=True, kw_only=True):
    """Messages of one queue: half-open offsets [begin, end)."""

    broker: str
    queue_id: int
    begin: int
    end: int
    stored_ms: int | None
    """When its newest message was stored; None for an empty or a read-only queue."""


class TopicInfo(msgspec.Struct, frozen=True, kw_only=True):
    """A topic, merged from the answers of all its brokers.

    The fields are the keys of `roquet topic show --json`.
    """

    name: str
    messages: int | None
    """None when no broker tells."""
    places: list[TopicBrokerInfo]
    queues: list[TopicQueueInfo]
    groups: list[str] | None
    """Groups that read it; None when no broker tells."""
    order_conf: str | None
    problems: list[str]


class TopicSettings(msgspec.Struct, frozen=True, kw_only=True):
    """Requested settings of a topic on each of its brokers; None keeps the present value."""

    read_queues: int | None = None
    write_queues: int | None = None
    permission: int | None = None
    order: bool | None = None
    attributes: str | None = None
    """`+name=value` or `-name`, with commas between them."""


async def list_names(admin: AdminClient, *, system: bool = False) -> list[str]:
    """Names of all topics; retry, dead-letter and system topics only with `system`."""
    topics = sorted(await admin.topics())
    if system:
        return topics
    brokers = await admin.brokers()
    info = await admin.cluster()
    # Brokers that do not answer add nothing: all of a release have the same system topics.
    answers, _failed = await admin.ask_each(brokers, GetSystemTopics())
    hidden = {*info.cluster_addr_table, *info.broker_addr_table, *names.SYSTEM_TOPICS}
    for reply in answers.values():
        hidden.update(codec.loads(reply.body, TopicList).topic_list)
    hidden.update(topic for topic in topics if names.is_retry(topic) or names.is_dlq(topic))
    return [topic for topic in topics if topic not in hidden]


async def show(admin: AdminClient, name: str) -> TopicInfo:
    """Everything about one topic. Raises UsageError when no broker has it."""
    route = await admin.known_route(name)
    brokers = leader_addresses(route.broker_datas)
    stats, configs, listeners = await asyncio.gather(
        admin.ask_each(brokers, GetTopicStats(topic=name)),
        admin.ask_each(brokers, GetTopic(topic=name)),
        admin.ask_each(brokers, GetGroupsOfTopic(topic=name)),
    )
    sizes = {data.broker_name: data for data in route.queue_datas}
    read_only, silent = await ask_read_only_queues(admin, name, brokers, sizes)
    queues = [*_queues(_decode_each(stats[0], TopicStats)), *read_only]
    by_id = {(queue.broker, queue.queue_id): queue for queue in queues}
    groups = {g for one in _decode_each(listeners[0], GroupList).values() for g in one.group_list}
    config_of = _decode_each(configs[0], TopicConfig)
    failed = {**silent, **listeners[1], **configs[1], **stats[1]}
    return TopicInfo(
        name=name,
        messages=sum(q.end - q.begin for q in by_id.values()) if stats[0] or queues else None,
        places=[
            _topic_broker_info(d, config_of.get(d.broker_name))
            for d in sorted(route.queue_datas, key=lambda data: data.broker_name)
        ],
        queues=[by_id[key] for key in sorted(by_id)],
        groups=sorted(groups) if listeners[0] else None,
        order_conf=route.order_topic_conf or None,
        problems=fault_lines(failed),
    )


async def ask_read_only_queues(
    admin: AdminClient,
    name: str,
    addresses: Mapping[str, str],
    sizes: Mapping[str, QueueData | TopicConfig],
) -> tuple[list[TopicQueueInfo], dict[str, CallError]]:
    """Read-only queues, as while a topic gets fewer; and errors of brokers that do not report them.

    Brokers leave them out of a topic's statistics. `sizes` are its numbers of queues by broker.
    """
    wanted = [
        (broker, queue_id)
        for broker, size in sizes.items()
        for queue_id in range(size.write_queue_nums, size.read_queue_nums)
        if broker in addresses
    ]

    async def read(queue: tuple[str, int]) -> TopicQueueInfo:
        broker, queue_id = queue
        low, high = await asyncio.gather(
            admin.ask(addresses[broker], MinOffset(topic=name, queue_id=queue_id)),
            admin.ask(addresses[broker], MaxOffset(topic=name, queue_id=queue_id)),
        )
        begin, end = low.offset, high.offset
        return TopicQueueInfo(
            broker=broker, queue_id=queue_id, begin=begin, end=end, stored_ms=None
        )

    queues, failed = await outcomes(wanted, read)
    return list(queues.values()), {broker: error for (broker, _), error in failed.items()}


async def create(
    admin: AdminClient, name: str, settings: TopicSettings, brokers: Sequence[str] = ()
) -> list[str]:
    """Create a topic on all brokers, or on those named; returns their names.

    Raises UsageError when one of them has it already: `update` changes it.
    """
    names.check_topic(name)
    _check_attributes(settings)
    addresses = _require_known(await admin.brokers(), brokers, "there is no broker")
    if (route := await admin.route(name)) is not None:
        existing = sorted({data.broker_name for data in route.queue_datas} & addresses.keys())
        if existing:
            raise UsageError(
                f"topic {name!r} is already on {', '.join(existing)}: `update` changes it"
            )
    call = CreateTopic(
        topic=name,
        read_queue_nums=_or_default(settings.read_queues, DEFAULT_QUEUES),
        write_queue_nums=_or_default(settings.write_queues, DEFAULT_QUEUES),
        perm=_or_default(settings.permission, READ_WRITE),
        order=bool(settings.order),
        attributes=settings.attributes,
    )
    done = await admin.change_each(dict.fromkeys(addresses, call), "created")
    await wait_until_registered(admin, dict.fromkeys(done, call))
    return done


async def update(
    admin: AdminClient, name: str, settings: TopicSettings, brokers: Sequence[str] = ()
) -> list[str]:
    """Change a topic on all its brokers, or on those named; returns their names.

    Settings that are None stay. Raises UsageError for an unknown topic or broker.
    """
    _check_attributes(settings)
    route = await admin.known_route(name)
    addresses = _require_known(
        leader_addresses(route.broker_datas), brokers, f"topic {name!r} is not on"
    )
    answers, silent = await admin.ask_each(addresses, GetTopic(topic=name))
    if silent:
        raise next(iter(silent.values()))
    known = _decode_each(answers, TopicConfig)
    calls = {broker: _change_call(known[broker], settings) for broker in addresses}
    done = await admin.change_each(calls, "changed")
    await wait_until_registered(admin, calls)
    return done


async def delete(admin: AdminClient, name: str) -> list[str]:
    """Delete a topic with its messages from its brokers and from all name servers."""
    route = await admin.known_route(name)
    addresses = leader_addresses(route.broker_datas)
    done = await admin.change_each(dict.fromkeys(addresses, DeleteTopic(topic=name)), "deleted")
    _, failed = await admin.ask_name_servers(ForgetTopic(topic=name))
    if wrong := without_answers(failed, ResponseCode.TOPIC_NOT_EXIST):
        raise RoquetError(
            f"deleted on {', '.join(done)}, but name servers still have it: {failures_text(wrong)}"
        )
    return done


def select_brokers(topic: TopicInfo, brokers: Sequence[str]) -> list[str]:
    """The brokers of a topic, or those named. Raises UsageError when it is not on one of them."""
    places = {place.broker: "" for place in topic.places}
    return list(_require_known(places, brokers, f"topic {topic.name!r} is not on"))


def permission_text(permission: int) -> str:
    """Permission bits as RW, R, W or a dash."""
    text = ("R" if permission & Permission.READ else "") + (
        "W" if permission & Permission.WRITE else ""
    )
    return text or "-"


def parse_permission(text: str) -> int:
    """The permission bits of RW, R, W or a dash. Raises UsageError for another text."""
    permission = {"RW": 6, "WR": 6, "R": 4, "W": 2, "-": 0}.get(text.upper())
    if permission is None:
        raise UsageError(f"permission {text!r}: RW, R, W or - (neither) is wanted")
    return permission


async def wait_until_registered(admin: AdminClient, calls: Mapping[str, CreateTopic]) -> None:
    """Wait until the name servers know of a change, so that the next look-up sees it.

    Gives up silently after `REGISTRATION_WAIT_MS`: the change is made, and the broker registers it
    later by itself.
    """
    name = next(iter(calls.values())).topic
    deadline_ms = admin.clock.monotonic_ms() + REGISTRATION_WAIT_MS
    while admin.clock.monotonic_ms() < deadline_ms:
        route = await admin.route(name)
        registered = {data.broker_name: data for data in route.queue_datas} if route else {}
        if all(
            broker in registered and _has_settings(registered[broker], call)
            for broker, call in calls.items()
        ):
            return
        await admin.clock.sleep(REGISTRATION_POLL_MS)


def _has_settings(data: QueueData, call: CreateTopic) -> bool:
    # A broker without write permission registers none for its topics.
    return (data.read_queue_nums, data.write_queue_nums) == (
        call.read_queue_nums,
        call.write_queue_nums,
    ) and data.perm & ~call.perm == 0


def _require_known(known: Mapping[str, str], wanted: Sequence[str], fault: str) -> dict[str, str]:
    """All of `known`, or those that are wanted. Raises UsageError when one is not known."""
    for name in wanted:
        if name not in known:
            raise UsageError(f"{fault} {name!r}{suggest(name, list(known))}")
    selected = {name: known[name] for name in wanted or known}
    if not selected:
        raise UsageError("the name servers know of no broker")
    return selected


def _check_attributes(settings: TopicSettings) -> None:
    for text in (settings.attributes or "").split(","):
        if text and text[0] not in "+-":
            raise UsageError(f"attribute {text!r}: +name=value sets one, -name takes it away")


def _change_call(known: TopicConfig, settings: TopicSettings) -> CreateTopic:
    return CreateTopic(
        topic=known.topic_name,
        read_queue_nums=_or_default(settings.read_queues, known.read_queue_nums),
        write_queue_nums=_or_default(settings.write_queues, known.write_queue_nums),
        perm=_or_default(settings.permission, known.perm),
        topic_filter_type=known.topic_filter_type,
        topic_sys_flag=known.topic_sys_flag,
        order=_or_default(settings.order, known.order),
        attributes=settings.attributes,
    )


def _or_default(requested: T | None, known: T) -> T:
    return known if requested is None else requested


def _topic_broker_info(data: QueueData, config: TopicConfig | None) -> TopicBrokerInfo:
    return TopicBrokerInfo(
        broker=data.broker_name,
        read_queues=data.read_queue_nums,
        write_queues=data.write_queue_nums,
        permission=permission_text(data.perm),
        order=config.order if config else None,
        attributes=dict(config.attributes) if config else None,
    )


def _queues(stats: Mapping[str, TopicStats]) -> Iterator[TopicQueueInfo]:
    for broker_stats in stats.values():
        for queue, offsets in broker_stats.offset_table.items():
            yield TopicQueueInfo(
                broker=queue.broker_name,
                queue_id=queue.queue_id,
                begin=offsets.min_offset,
                end=offsets.max_offset,
                stored_ms=offsets.last_update_timestamp or None,
            )


def _decode_each(answers: Mapping[str, Reply], kind: type[T]) -> dict[str, T]:
    return {broker: codec.loads(reply.body, kind) for broker, reply in answers.items()}
