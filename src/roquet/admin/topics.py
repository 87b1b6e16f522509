"""Topics: where they live and what they hold; made, changed, resized and deleted on all brokers."""

import asyncio
from collections.abc import Iterator, Mapping, Sequence
from typing import Final, TypeVar

import msgspec

from roquet.admin.client import AdminClient, leader_addresses, told
from roquet.model import names
from roquet.model.errors import CallError, CallRefused, RoquetError, UsageError
from roquet.model.flags import Permission
from roquet.model.route import QueueData, TopicRoute
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
"""Queues of a new topic on each broker, as brokers make them by themselves."""

REGISTRATION_WAIT_MS: Final = 5_000
"""How long a change may take to reach the name servers: brokers tell them at once, but not all do
it before they answer."""

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
    """None, and no attributes, when the broker does not tell."""
    attributes: dict[str, str] | None = None


class TopicQueueInfo(msgspec.Struct, frozen=True, kw_only=True):
    """What one queue holds: the offsets from `begin` to before `end`."""

    broker: str
    queue_id: int
    begin: int
    end: int
    stored_ms: int | None
    """When its newest message was stored; None, too, for a queue that can only be read."""


class TopicInfo(msgspec.Struct, frozen=True, kw_only=True):
    """A topic, as all its brokers together know it."""

    name: str
    messages: int
    places: list[TopicBrokerInfo]
    queues: list[TopicQueueInfo]
    groups: list[str]
    order_conf: str | None
    problems: list[str]


class TopicSettings(msgspec.Struct, frozen=True, kw_only=True):
    """What is asked for a topic on each of its brokers; None keeps what is there."""

    read_queues: int | None = None
    write_queues: int | None = None
    permission: int | None = None
    order: bool | None = None
    attributes: str | None = None
    """`+name=value` or `-name`, with commas between them."""


async def list_names(admin: AdminClient, *, system: bool = False) -> list[str]:
    """The names of all topics; retry, dead-letter and system ones only when asked for."""
    found = sorted(await admin.topics())
    if system:
        return found
    brokers = await admin.brokers()
    info = await admin.cluster()
    answers, _ = await admin.ask_each(brokers, GetSystemTopics())
    hidden = {*info.cluster_addr_table, *info.broker_addr_table}
    for reply in answers.values():
        hidden.update(codec.loads(reply.body, TopicList).topic_list)
    return [topic for topic in found if topic not in hidden and not _is_derived(topic)]


async def show(admin: AdminClient, name: str) -> TopicInfo:
    """One topic; UsageError when no broker has it."""
    route = await admin.known_route(name)
    brokers = leader_addresses(route.broker_datas)
    stats, configs, listeners = await asyncio.gather(
        admin.ask_each(brokers, GetTopicStats(topic=name)),
        admin.ask_each(brokers, GetTopic(topic=name)),
        admin.ask_each(brokers, GetGroupsOfTopic(topic=name)),
    )
    leaving, untold = await _read_only_queues(admin, name, route)
    queues = [*_queues(_decode_each(stats[0], TopicStats)), *leaving]
    queues = sorted({(q.broker, q.queue_id): q for q in queues}.values(), key=_queue_order)
    groups = {g for one in _decode_each(listeners[0], GroupList).values() for g in one.group_list}
    told = _decode_each(configs[0], TopicConfig)
    return TopicInfo(
        name=name,
        messages=sum(queue.end - queue.begin for queue in queues),
        places=[
            _topic_broker_info(d, told.get(d.broker_name)) for d in _by_broker(route.queue_datas)
        ],
        queues=queues,
        groups=sorted(groups),
        order_conf=route.order_topic_conf or None,
        problems=[f"{b} does not tell: {error}" for b, error in {**untold, **stats[1]}.items()],
    )


async def _read_only_queues(
    admin: AdminClient, name: str, route: TopicRoute
) -> tuple[list[TopicQueueInfo], dict[str, CallError]]:
    """Queues that can only be read, as while a topic gets fewer; and who does not tell of them.

    Brokers leave them out when they are asked what a topic holds.
    """
    places = leader_addresses(route.broker_datas)
    wanted = [
        (data.broker_name, queue_id)
        for data in route.queue_datas
        for queue_id in range(data.write_queue_nums, data.read_queue_nums)
        if data.broker_name in places
    ]

    async def one(broker: str, queue_id: int) -> TopicQueueInfo | CallError:
        try:
            low, high = await asyncio.gather(
                admin.ask(places[broker], MinOffset(topic=name, queue_id=queue_id)),
                admin.ask(places[broker], MaxOffset(topic=name, queue_id=queue_id)),
            )
        except CallError as error:
            return error
        begin, end = low.offset, high.offset
        return TopicQueueInfo(
            broker=broker, queue_id=queue_id, begin=begin, end=end, stored_ms=None
        )

    found = await asyncio.gather(*(one(*place) for place in wanted))
    silent = {b: e for (b, _), e in zip(wanted, found, strict=True) if isinstance(e, CallError)}
    return [queue for queue in found if isinstance(queue, TopicQueueInfo)], silent


def _queue_order(queue: TopicQueueInfo) -> tuple[str, int]:
    return queue.broker, queue.queue_id


async def create(
    admin: AdminClient, name: str, settings: TopicSettings, brokers: Sequence[str] = ()
) -> list[str]:
    """Make a topic on all brokers, or on those named; gives their names.

    UsageError when one of them has it already: `update` changes it then.
    """
    names.check_topic(name)
    _check_attributes(settings)
    places = await _online_brokers(admin, brokers)
    if (route := await admin.route(name)) is not None:
        there = sorted({data.broker_name for data in route.queue_datas} & places.keys())
        if there:
            raise UsageError(
                f"topic {name!r} is already on {', '.join(there)}: `update` changes it"
            )
    call = CreateTopic(
        topic=name,
        read_queue_nums=_or_default(settings.read_queues, DEFAULT_QUEUES),
        write_queue_nums=_or_default(settings.write_queues, DEFAULT_QUEUES),
        perm=_or_default(settings.permission, READ_WRITE),
        order=bool(settings.order),
        attributes=settings.attributes,
    )
    done = await admin.change_each(dict.fromkeys(places, call), places, "created")
    await _wait_until_registered(admin, dict.fromkeys(done, call))
    return done


async def update(
    admin: AdminClient, name: str, settings: TopicSettings, brokers: Sequence[str] = ()
) -> list[str]:
    """Change a topic where it is, or on those brokers named; what is not given stays."""
    _check_attributes(settings)
    route = await admin.known_route(name)
    places = _require_known(
        leader_addresses(route.broker_datas), brokers, f"topic {name!r} is not on"
    )
    answers, silent = await admin.ask_each(places, GetTopic(topic=name))
    if silent:
        raise next(iter(silent.values()))
    known = _decode_each(answers, TopicConfig)
    calls = {broker: _change_call(known[broker], settings) for broker in places}
    done = await admin.change_each(calls, places, "changed")
    await _wait_until_registered(admin, calls)
    return done


async def delete(admin: AdminClient, name: str) -> list[str]:
    """Delete a topic with its messages, from its brokers and from all name servers."""
    route = await admin.known_route(name)
    places = leader_addresses(route.broker_datas)
    done = await admin.change_each(
        dict.fromkeys(places, DeleteTopic(topic=name)), places, "deleted"
    )
    _, failed = await admin.ask_name_servers(ForgetTopic(topic=name))
    wrong = {n: e for n, e in failed.items() if not _is_unknown_topic(e)}
    if wrong:
        raise RoquetError(
            f"deleted on {', '.join(done)}, but name servers still have it: {told(wrong)}"
        )
    return done


def select_brokers(found: TopicInfo, brokers: Sequence[str]) -> list[str]:
    """The brokers of a topic, or those of them that are named; UsageError when one is none."""
    places = {place.broker: "" for place in found.places}
    return list(_require_known(places, brokers, f"topic {found.name!r} is not on"))


def permission_text(permission: int) -> str:
    """RW, R, W or a dash."""
    text = ("R" if permission & Permission.READ else "") + (
        "W" if permission & Permission.WRITE else ""
    )
    return text or "-"


def parse_permission(text: str) -> int:
    """The number of RW, R, W or a dash."""
    found = {"RW": 6, "WR": 6, "R": 4, "W": 2, "-": 0}.get(text.upper())
    if found is None:
        raise UsageError(f"permission {text!r}: RW, R, W or - (neither) is wanted")
    return found


async def _wait_until_registered(admin: AdminClient, calls: Mapping[str, CreateTopic]) -> None:
    """Wait a while for the brokers to have told the name servers: whoever asks next then finds it.

    A broker that takes longer does it later by itself: what was asked for is done already.
    """
    name = next(iter(calls.values())).topic
    deadline_ms = admin.clock.monotonic_ms() + REGISTRATION_WAIT_MS
    while admin.clock.monotonic_ms() < deadline_ms:
        route = await admin.route(name)
        told = {data.broker_name: data for data in route.queue_datas} if route else {}
        if all(
            broker in told and _has_settings(told[broker], call) for broker, call in calls.items()
        ):
            return
        await admin.clock.sleep(REGISTRATION_POLL_MS)


def _has_settings(told: QueueData, call: CreateTopic) -> bool:
    # A broker without write permission tells of none for its topics.
    return (told.read_queue_nums, told.write_queue_nums) == (
        call.read_queue_nums,
        call.write_queue_nums,
    ) and told.perm & ~call.perm == 0


async def _online_brokers(admin: AdminClient, brokers: Sequence[str]) -> dict[str, str]:
    return _require_known(await admin.brokers(), brokers, "there is no broker")


def _require_known(known: Mapping[str, str], wanted: Sequence[str], fault: str) -> dict[str, str]:
    """All, or those that are wanted; UsageError when one of these is not there."""
    for name in wanted:
        if name not in known:
            raise UsageError(f"{fault} {name!r}{suggest(name, list(known))}")
    found = {name: known[name] for name in wanted or known}
    if not found:
        raise UsageError("the name servers know of no broker")
    return found


def _is_unknown_topic(error: CallError) -> bool:
    """Whether a name server only says that it does not have the topic."""
    return isinstance(error, CallRefused) and error.code == ResponseCode.TOPIC_NOT_EXIST


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


def _or_default(asked: T | None, known: T) -> T:
    return known if asked is None else asked


def _is_derived(topic: str) -> bool:
    return names.is_retry(topic) or names.is_dlq(topic)


def _by_broker(datas: Sequence[QueueData]) -> list[QueueData]:
    return sorted(datas, key=lambda data: data.broker_name)


def _topic_broker_info(data: QueueData, told: TopicConfig | None) -> TopicBrokerInfo:
    return TopicBrokerInfo(
        broker=data.broker_name,
        read_queues=data.read_queue_nums,
        write_queues=data.write_queue_nums,
        permission=permission_text(data.perm),
        order=told.order if told else None,
        attributes=dict(told.attributes) if told else None,
    )


def _queues(stats: Mapping[str, TopicStats]) -> Iterator[TopicQueueInfo]:
    for one in stats.values():
        for queue, found in one.offset_table.items():
            yield TopicQueueInfo(
                broker=queue.broker_name,
                queue_id=queue.queue_id,
                begin=found.min_offset,
                end=found.max_offset,
                stored_ms=found.last_update_timestamp or None,
            )


def _decode_each(answers: Mapping[str, Reply], kind: type[T]) -> dict[str, T]:
    return {broker: codec.loads(reply.body, kind) for broker, reply in answers.items()}
