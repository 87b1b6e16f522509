"""Runtime: runtime info of the broker, under the keys of Apache's tools.

Each value is a text. Measures of threads, locks or garbage collection have the values of a broker
that has none of them.
"""

from collections.abc import Iterator, Mapping
from typing import Final

from roquet import __version__
from roquet.broker import admission
from roquet.broker.broker import BrokerComponent
from roquet.broker.control import ControlPlane
from roquet.broker.delivery import DeliveryServices
from roquet.broker.log.message_log import MessageLog
from roquet.broker.statistics import COUNT, TIMES, StatsCounter
from roquet.broker.tables.broker_tables import BrokerTables
from roquet.model.names import SCHEDULE_TOPIC
from roquet.net.router import Peer
from roquet.store.store import Store
from roquet.wire.call import Reply
from roquet.wire.calls.admin.stats import GetRuntimeInfo
from roquet.wire.calls.bodies import KVTable
from roquet.wire.fastjson import codec
from roquet.wire.records.record import decode

VERSION_NAME: Final = "V5_5_0"
"""The version name that Apache's tools show for our version number."""

UNITS: Final = ("B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB")

POOLS: Final[Mapping[str, str]] = {
    "send": admission.SEND,
    "pull": admission.PULL,
    "litePull": admission.PULL,
    "query": admission.QUERY,
    "ack": admission.ACK,
}
"""The genuine broker's thread pools, and our limits for the same requests."""


class RuntimeHandler(BrokerComponent, frozen=True):
    """Reports the runtime info of this broker."""

    log: MessageLog
    delivery: DeliveryServices
    tables: BrokerTables
    control: ControlPlane

    async def runtime_info(self, _call: GetRuntimeInfo, _peer: Peer) -> Reply:
        """Return the runtime info."""
        await self.control.sampler.look()
        table = {
            **self._identity(),
            **self._rates(),
            **self._totals(),
            **self._disk(),
            **self._timer(),
            **self._set_aside(),
            **self._levels(),
            **dict(self._pools()),
            **self._slow_requests(),
        }
        return Reply(body=codec.dumps(KVTable(table=table)))

    def _identity(self) -> dict[str, str]:
        boot_ms = self.control.statistics.boot_ms
        return {
            "brokerActive": "true",
            "brokerVersionDesc": VERSION_NAME,
            "roquetVersion": __version__,
            "bootTimestamp": str(boot_ms),
            "runtime": lasted(self.control.clock.now_ms() - boot_ms),
            "startAcceptSendRequestTimeStamp": "0",
        }

    def _rates(self) -> dict[str, str]:
        """Rates a second in the last ten seconds, minute and ten minutes."""
        statistics = self.control.statistics
        puts, gets, misses = statistics.broker_puts, statistics.broker_gets, statistics.misses

        def texts(*tallies: StatsCounter, number: int = TIMES) -> str:
            by_span = zip(*(statistics.rates(tally, number) for tally in tallies), strict=True)
            return " ".join(str(sum(rates)) for rates in by_span)

        return {
            "putTps": texts(puts, number=COUNT),
            "getTransferredTps": texts(gets, number=COUNT),
            "getFoundTps": texts(gets),
            "getMissTps": texts(misses),
            "getTotalTps": texts(gets, misses),
        }

    def _totals(self) -> dict[str, str]:
        statistics = self.control.statistics
        puts, put, get = statistics.broker_puts, statistics.put_total, statistics.get_total
        return {
            "msgPutTotalYesterdayMorning": str(put.yesterday_morning),
            "msgPutTotalTodayMorning": str(put.today_morning),
            "msgPutTotalTodayNow": str(put.now),
            "msgGetTotalYesterdayMorning": str(get.yesterday_morning),
            "msgGetTotalTodayMorning": str(get.today_morning),
            "msgGetTotalTodayNow": str(get.now),
            "putMessageTimesTotal": str(puts.count),
            "putMessageSizeTotal": str(puts.size),
            "putMessageAverageSize": str(puts.size / puts.count if puts.count else 0.0),
            "putMessageFailedTimes": "0",
            "putMessageDistributeTime": "null",
            "putMessageEntireTimeMax": "0",
            "getMessageEntireTimeMax": "0",
            "putLatency99": "0.00",
            "putLatency999": "0.00",
        }

    def _disk(self) -> dict[str, str]:
        store, usage = self.log.store, self.log.store.disk
        ratio = f"{usage.ratio:.2f}"
        store_dir = self.control.settings.config.store_dir
        log_dir = store_dir / "commitlog" if store_dir else "memory"
        return {
            "commitLogMinOffset": str(store.begin_position),
            "commitLogMaxOffset": str(store.end_position),
            # Ours: readers see no further.
            "commitLogConfirmedOffset": str(store.confirmed_position),
            "commitLogDirCapacity": f"Total : {sized(usage.total)}, Free : {sized(usage.free)}.",
            "commitLogDiskRatio": ratio,
            f"commitLogDiskRatio_{log_dir}": ratio,
            "consumeQueueDiskRatio": ratio,
            "earliestMessageTimeStamp": str(earliest_ms(store)),
            "dispatchBehindBytes": str(store.end_position - store.indexed_position),
            "dispatchMaxBuffer": "0",
            "remainHowManyDataToFlush": sized(store.end_position - store.flushed_position),
            "remainTransientStoreBufferNumbs": str(2**31 - 1),
            "pageCacheLockTimeMills": "0",
        }

    def _timer(self) -> dict[str, str]:
        return {
            "timerReadBehind": "0",
            "timerOffsetBehind": str(self.delivery.timer.behind),
            "timerCongestNum": "0",
            "timerEnqueueTps": "0.0",
            "timerDequeueTps": "0.0",
        }

    def _set_aside(self) -> dict[str, str]:
        """Messages set aside: in all, and by service since the start.

        A genuine broker has no such keys; ours has them only if there are any.
        """
        kept = self.delivery.set_aside
        if not kept.total:
            return {}
        counts = {f"setAside_{name}": str(count) for name, count in sorted(kept.counts.items())}
        return {"setAsideTotal": str(kept.total), **counts}

    def _levels(self) -> dict[str, str]:
        """The progress of each delay level, and the end of its queue."""
        return {
            f"scheduleMessageOffset_{level}": (
                f"{offset},{self.log.store.bounds(SCHEDULE_TOPIC, level - 1)[1]}"
            )
            for level, offset in self.tables.delay_offsets.used().items()
        }

    def _pools(self) -> Iterator[tuple[str, str]]:
        for name, kind in POOLS.items():
            gate = self.control.admission.gates[kind]
            # Pulls that wait for new messages do not wait for the broker.
            count = 0 if kind == admission.PULL else gate.count
            yield f"{name}ThreadPoolQueueSize", str(count)
            yield f"{name}ThreadPoolQueueCapacity", str(gate.limits.count)
            yield f"{name}ThreadPoolQueueHeadWaitTimeMills", str(gate.waited_ms)
        gate = self.control.admission.gates[admission.TRANSACTION]
        yield "EndTransactionQueueSize", str(gate.count)
        yield "EndTransactionThreadPoolQueueCapacity", str(gate.limits.count)

    def _slow_requests(self) -> dict[str, str]:
        """Ours: requests that held up all others, if there were any."""
        share = self.control.slow_requests
        if not share.count:
            return {}
        return {
            "slowRequestCount": str(share.count),
            "slowRequestLongestMillis": str(share.longest_ms),
            "slowRequestLatest": share.latest,
        }


def earliest_ms(store: Store) -> int:
    """When the first message of the log was stored, in ms; -1 for an empty log."""
    record = store.message_at(store.begin_position)
    return decode(record).stored_ms if record else -1


def sized(count: int) -> str:
    """Bytes in a readable form: 1.5 KiB."""
    if count < 1024:
        return f"{count} B"
    power = min((count.bit_length() - 1) // 10, len(UNITS) - 1)
    return f"{count / 1024**power:.1f} {UNITS[power]}"


def lasted(ms: int) -> str:
    """A duration, as the genuine broker writes it."""
    minutes, seconds = divmod(ms // 1000, 60)
    hours, minutes = divmod(minutes, 60)
    days, hours = divmod(hours, 24)
    return f"[ {days} days, {hours} hours, {minutes} minutes, {seconds} seconds ]"
