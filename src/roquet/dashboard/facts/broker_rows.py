"""Broker rows: the load and the disk of a broker, from its runtime statistics."""

import msgspec

from roquet.admin.brokers import BrokerStatus
from roquet.dashboard.facts.problems import disk_share, number_of
from roquet.dashboard.sampling.sampler import rate_of


class BrokerRow(msgspec.Struct, frozen=True, kw_only=True):
    """A broker in a list; None is what it does not say."""

    cluster: str
    broker: str
    broker_id: int
    address: str
    software: str
    in_per_s: float | None
    out_per_s: float | None
    disk: float | None
    """Share of the disk in use, from 0 to 1."""
    today: int | None
    """Messages stored since midnight."""
    send_waiting: int | None
    """Requests that wait to be stored."""
    pull_waiting: int | None
    """Requests that wait to be read for."""
    booted_ms: int | None
    set_aside: int
    fault: str | None


def broker_row(broker: BrokerStatus) -> BrokerRow:
    """The row of a broker."""
    info = broker.info
    now, morning = (
        _whole(info.get("msgPutTotalTodayNow")),
        _whole(info.get("msgPutTotalTodayMorning")),
    )
    return BrokerRow(
        cluster=broker.cluster,
        broker=broker.broker,
        broker_id=broker.broker_id,
        address=broker.address,
        software=broker.software,
        in_per_s=rate_of(broker.puts_per_s),
        out_per_s=rate_of(broker.gets_per_s),
        disk=disk_share(broker),
        today=None if now is None or morning is None else now - morning,
        send_waiting=_whole(info.get("sendThreadPoolQueueSize")),
        pull_waiting=_whole(info.get("pullThreadPoolQueueSize")),
        booted_ms=_whole(info.get("bootTimestamp")),
        set_aside=broker.set_aside,
        fault=broker.fault,
    )


def _whole(text: str | None) -> int | None:
    value = number_of(text or "")
    return None if value is None else int(value)
