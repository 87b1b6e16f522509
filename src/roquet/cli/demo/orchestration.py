"""Orchestration of the demo: servers, consumers and Spark in child processes, the producer here.

file ──▶ producer ──▶ two brokers ──▶ consumers: two, then three, then one is killed
                           │
                           └────────▶ Spark stream, stopped in the middle ──▶ table ──▶ verdict
"""

import asyncio
from collections.abc import Coroutine
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any, Final

import msgspec

from roquet.cli.demo import event_log, flights, pipeline
from roquet.cli.demo.consumer_group import ConsumerProcesses, MemberSettings
from roquet.cli.demo.facts import DemoFacts, TableFacts
from roquet.cli.demo.report import DemoTimeline
from roquet.cli.demo.screen import Screen
from roquet.cli.process.child_processes import ChildProcess
from roquet.client.producer import Producer
from roquet.client.pull import PullConsumer
from roquet.model.topic import READ_WRITE
from roquet.net.clock import SYSTEM_CLOCK
from roquet.net.pool import ChannelPool
from roquet.wire.calls.admin.topic import CreateTopic

BROKERS: Final = ("broker-a", "broker-b")
QUEUES: Final = 4
"""On each broker."""

GROUP: Final = "flight-watchers"
FIRST, SECOND, THIRD = "consumer-1", "consumer-2", "consumer-3"

JOIN_AT, KILL_AT = 1, 2
"""Thirds of the flights after which the third consumer joins, and the first is killed."""

DRAIN_TIMEOUT_S: Final = 120
POLL_S: Final = 0.05

SERVERS: Final = "roquet"
PIPELINE: Final = "roquet.cli.demo.pipeline"


class DemoRun:
    """One run of the demo, from the first process to the last."""

    def __init__(self, directory: Path, count: int, screen: Screen) -> None:
        self._directory = directory
        self._logs = directory / "logs"
        self._facts = directory / "facts.json"
        self._count = count
        self._screen = screen
        self._started_ms = SYSTEM_CLOCK.now_ms()
        self._running = AsyncExitStack()
        self._namesrv = ""
        self._sent_ms: list[int] = []
        self._moments: list[tuple[int, str]] = []
        self._group: ConsumerProcesses
        self._pipeline: ChildProcess
        self._sent_so_many = {self._thirds(n): asyncio.Event() for n in (JOIN_AT, KILL_AT)}

    async def run(self) -> tuple[DemoFacts, DemoTimeline]:
        """Run everything; returns the counts and the events for the report."""
        self._logs.mkdir(parents=True, exist_ok=True)
        async with self._running:
            await self._start_servers()
            journey = await self._send_and_consume()
            stored = await self._stored()
            table = await self._to_the_table()
        books = journey.books.values()
        facts = DemoFacts(
            flights=self._count,
            sent=len(self._sent_ms),
            stored=stored,
            handled=event_log.distinct_handled(books),
            twice=event_log.duplicates(books),
            table=table,
        )
        return facts, journey

    async def _start_servers(self) -> None:
        namesrv = await self._start("namesrv", "--port", "0", "--host", "127.0.0.1")
        self._namesrv = await namesrv.wait_ready("ready at ")
        self._screen.step(f"name server at {self._namesrv}")
        addresses = await asyncio.gather(*map(self._start_broker, BROKERS))
        call = CreateTopic(
            topic=flights.TOPIC, read_queue_nums=QUEUES, write_queue_nums=QUEUES, perm=READ_WRITE
        )
        async with ChannelPool() as pool:
            await asyncio.gather(*(pool.call(address, call) for address in addresses))
        for name, address in zip(BROKERS, addresses, strict=True):
            self._screen.step(f"{name} at {address}: topic {flights.TOPIC} with {QUEUES} queues")

    async def _start(self, command: str, *arguments: str, name: str | None = None) -> ChildProcess:
        child = await ChildProcess.start(
            name or command, SERVERS, command, *arguments, logs=self._logs,
            environ={"ROQUET_HOST": "127.0.0.1"},
        )  # fmt: skip
        self._running.push_async_callback(child.stop)
        return child

    async def _start_broker(self, name: str) -> str:
        child = await self._start(
            "broker", "--name", name, "--namesrv", self._namesrv, "--port", "0",
            "--advertise", "127.0.0.1", "--data", str(self._directory / name), name=name,
        )  # fmt: skip
        return await child.wait_ready("ready at ")

    async def _send_and_consume(self) -> DemoTimeline:
        """Send all flights to the group, whose members join and die meanwhile."""
        self._started_ms = SYSTEM_CLOCK.now_ms()
        settings = MemberSettings(
            namesrv=self._namesrv, group=GROUP, book="", started_ms=self._started_ms
        )
        self._group = ConsumerProcesses(self._logs, settings, len(BROKERS) * QUEUES)
        self._running.push_async_callback(self._group.stop)
        await self._change("two consumers share the queues:", FIRST, SECOND)
        await _run_all(self._send(), self._come_and_go())
        await self._start_spark()
        await self._drained()
        await self._group.stop()
        return DemoTimeline(
            sent_ms=self._sent_ms,
            books=self._group.books(),
            owned=self._group.owned,
            ends_ms=self._group.ends_ms,
            moments=self._moments,
            end_ms=self._now_ms(),
        )

    async def _send(self) -> None:
        file = flights.archive_path()
        with self._screen.bar("sending", self._count) as bar:
            async with Producer(self._namesrv) as producer:
                async for _ in producer.send_many(flights.read(file, self._count)):
                    self._sent_ms.append(self._now_ms())
                    sent = len(self._sent_ms)
                    bar.to(sent)
                    if sent in self._sent_so_many:
                        self._sent_so_many[sent].set()

    async def _come_and_go(self) -> None:
        await self._sent_so_many[self._thirds(JOIN_AT)].wait()
        self._happens("consumer-3 joins")
        await self._change("a third consumer has joined:", THIRD)
        await self._sent_so_many[self._thirds(KILL_AT)].wait()
        self._happens("consumer-1 is killed")
        await self._group.kill(FIRST)
        await self._change("the first consumer was killed (SIGKILL), the others took over:")

    async def _change(self, text: str, *joining: str) -> None:
        """Start members, and show the owners once every queue has one."""
        await asyncio.gather(*map(self._group.join, joining))
        await self._group.settled()
        self._screen.step(f"  {text}")
        self._screen.owners(self._group.owners())

    async def _drained(self) -> None:
        deadline_ms = self._now_ms() + DRAIN_TIMEOUT_S * 1000
        while self._group.notes() < len(self._sent_ms) or not self._is_handled():
            self._group.check()
            if self._now_ms() > deadline_ms:
                self._screen.step("  the group did not get through in time")
                return
            await asyncio.sleep(POLL_S)

    def _is_handled(self) -> bool:
        return event_log.distinct_handled(self._group.books().values()) >= len(self._sent_ms)

    async def _stored(self) -> int:
        async with PullConsumer(self._namesrv, group=f"{GROUP}-audit") as audit:
            queues = await audit.queues(flights.TOPIC)
            ends = await asyncio.gather(*map(audit.max_offset, queues))
            begins = await asyncio.gather(*map(audit.min_offset, queues))
        return sum(ends) - sum(begins)

    async def _start_spark(self) -> None:
        """Start the Spark process, which takes seconds to get ready."""
        settings = pipeline.PipelineSettings(
            namesrv=self._namesrv,
            topic=flights.TOPIC,
            table=str(self._directory / "flights.parquet"),
            checkpoint=str(self._directory / "checkpoint"),
            flights=self._count,
            facts=str(self._facts),
        )
        self._pipeline = await ChildProcess.start(
            "spark", PIPELINE, msgspec.json.encode(settings).decode(), logs=self._logs
        )
        self._running.push_async_callback(self._pipeline.stop)

    async def _to_the_table(self) -> TableFacts:
        """Run the stream, stopped in the middle and started again; returns the table's counts."""
        self._screen.step("Spark streams the topic to a Parquet table")
        self._pipeline.write_line("begin")
        with self._screen.bar("rows", self._count) as bar:
            async for line in self._pipeline.lines():
                written = msgspec.json.decode(line, type=pipeline.RowsWritten)
                bar.to(written.rows)
                if written.stopped:
                    rows = f"{written.rows:,}"
                    self._screen.step(f"  stopped with {rows} rows in the table; started again")
        await self._pipeline.wait_success()
        return msgspec.json.decode(self._facts.read_bytes(), type=TableFacts)

    def _thirds(self, number: int) -> int:
        return -(-self._count * number // 3)

    def _happens(self, name: str) -> None:
        self._moments.append((self._now_ms(), name))

    def _now_ms(self) -> int:
        return SYSTEM_CLOCK.now_ms() - self._started_ms


async def _run_all(*work: Coroutine[Any, Any, None]) -> None:
    """Run coroutines to their ends; when one fails, cancel the others and raise its error."""
    try:
        async with asyncio.TaskGroup() as group:
            for one in work:
                group.create_task(one)
    except BaseExceptionGroup as failures:
        raise failures.exceptions[0] from None
