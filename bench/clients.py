"""Our client measured beside others: Java's benchmark Consumer, and PyPI's C++ based `rocketmq`.

    python -m bench.clients --only drain,cpp --messages 1000000

All of them work against our broker, each in one process, in turn. `drain` reads a full topic and
does nothing with its messages; `cpp` sends and reads with the same number of messages in flight.
Linux only: CPU time is read from /proc.
"""

import argparse
import itertools
import json
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

from bench.lib.filled import filled
from bench.lib.measures import cpu_seconds
from bench.lib.rows import Row, save, show
from bench.lib.sides import REPORT
from harness import genuine

HERE = Path(__file__).resolve().parent

TOPIC = "ClientBench"
IN_FLIGHT = 64
QUIET_S = 3
"""A reader to whom nothing came for so long has read everything."""


def said(command: list[str], home: Path, seconds: int = 300) -> dict[str, float]:
    """Figures that a child measured of itself: the last line that it printed."""
    text = genuine.run(command, seconds=seconds, home=home)
    found: dict[str, float] = json.loads([x for x in text.splitlines() if x.startswith("{")][-1])
    return found


# -- our side, each in a process of its own ------------------------------------------------------


def consume(namesrv: str, group: str) -> None:
    """Read until nothing comes any more; messages a second, and CPU of this process."""
    import asyncio

    from roquet.client import ConsumeFrom, ConsumerConfig, PushConsumer, ReceivedMessage
    from roquet.net.loop import run

    times: list[float] = []
    last = [0.0]

    async def handle(_: ReceivedMessage) -> None:
        last[0] = time.monotonic()
        times.append(last[0])

    async def main() -> None:
        config = ConsumerConfig(consume_from=ConsumeFrom.FIRST)
        async with PushConsumer(namesrv, group=group, topic=TOPIC, config=config) as consumer:
            reading = asyncio.create_task(consumer.run(handle))
            while not times or time.monotonic() - last[0] < QUIET_S:  # noqa: ASYNC110
                await asyncio.sleep(0.1)
            consumer.stop()
            await reading

    run(main())
    tell(times)


def send(namesrv: str, seconds: float) -> None:
    """Awaited sends, so many at one time."""
    import asyncio

    from roquet.client import Producer
    from roquet.net.loop import run

    times: list[float] = []

    async def main() -> None:
        async with Producer(namesrv) as producer:
            await producer.send(TOPIC, b"x" * 128)
            end = time.monotonic() + seconds

            async def one() -> None:
                while time.monotonic() < end:
                    await producer.send(TOPIC, b"x" * 128)
                    times.append(time.monotonic())

            await asyncio.gather(*(one() for _ in range(IN_FLIGHT)))

    run(main())
    tell(times)


def tell(times: list[float]) -> None:
    """One line of JSON, of all but the first tenth: clients warm up."""
    warm = times[len(times) // 10 :]
    rate = (len(warm) - 1) / (warm[-1] - warm[0])
    cpu_us = time.process_time() / len(times) * 1e6
    print(json.dumps({"rate": rate, "cpu_us": cpu_us, "messages": len(times)}))


# -- the others ----------------------------------------------------------------------------------


def java_drain(namesrv: str) -> dict[str, float]:
    """Java's benchmark Consumer: rate and CPU of the warm reports."""
    command = genuine.java(
        "example.benchmark.Consumer", "-t", TOPIC, "-g", "java_drain", "-p", "false", "-n", namesrv
    )
    child = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    watchdog = threading.Timer(90, child.kill)
    watchdog.start()
    began, seen = time.monotonic(), [(time.monotonic(), 0.0, 0.0)]
    try:
        assert child.stdout is not None
        for line in child.stdout:
            if (match := REPORT.search(line)) is None:
                continue
            seen.append((time.monotonic(), cpu_seconds(child.pid), float(match[1])))
            if float(match[1]) == 0 or time.monotonic() - began > 60:
                break
    finally:
        watchdog.cancel()
        child.kill()
        child.wait()
    busy = [(b[2] * (b[0] - a[0]), b[1] - a[1], b[0] - a[0]) for a, b in itertools.pairwise(seen)]
    messages = sum(m for m, _, _ in busy)
    return {
        "rate": max(m / s for m, _, s in busy),
        "cpu_us": sum(c for m, c, _ in busy if m) / messages * 1e6,
        "messages": messages,
    }


def drain(folder: Path, messages: int) -> list[Row]:
    """A full topic read by our PushConsumer and by Java's."""
    me = [sys.executable, "-m", "bench.clients"]
    with filled(folder, TOPIC, messages, 128) as topic:
        namesrv = topic.namesrv
        ours = said([*me, "--consume", namesrv, "our_drain"], folder / "h1")
        theirs = None if genuine.missing() else java_drain(namesrv)
    assert ours["messages"] >= messages, ours
    cpu = theirs["cpu_us"] if theirs else None
    rate = theirs["rate"] if theirs else None
    return [
        Row("PushConsumer, draining: throughput", "msg/s", ours["rate"], rate, ">= 150000"),
        Row("PushConsumer, draining: client CPU a message", "us", ours["cpu_us"], cpu, "<= 1.2 x"),
    ]  # fmt: skip


def beside_cpp(folder: Path, messages: int) -> list[Row]:
    """Sends and reads, as many at one time, by our client and by the C++ based one."""
    python = genuine.CACHE / "cpp-client-0.4.4" / "bin" / "python"
    if not python.exists():
        print("the C++ based client is not installed: `make interop` does that")
        return []
    me = [sys.executable, "-m", "bench.clients"]
    cpp = [str(python), str(HERE / "cpp_client.py")]
    with filled(folder, TOPIC, messages, 128) as topic:
        namesrv = topic.namesrv
        sends = [
            said([*command, "--send", namesrv, "10"], folder / f"h{n}")
            for n, command in enumerate((me, cpp))
        ]
        reads = [
            said([*command, "--consume", namesrv, f"CID_{n}"], folder / f"h{n}")
            for n, command in enumerate((me, cpp))
        ]
    return [
        Row(f"{what}, {IN_FLIGHT} at one time, beside rocketmq 0.4.4", "msg/s", ours["rate"],
            theirs["rate"], ">= 2 x")
        for what, (ours, theirs) in (("send", sends), ("read", reads))
    ]  # fmt: skip


def main() -> None:
    """Measure and print; or be one of the children."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", default="drain,cpp")
    parser.add_argument("--messages", type=int, default=1_500_000)
    parser.add_argument("--out", type=Path, default=Path("build/bench-clients.json"))
    parser.add_argument("--consume", nargs=2)
    parser.add_argument("--send", nargs=2)
    args = parser.parse_args()
    if args.consume:
        consume(*args.consume)
        return
    if args.send:
        send(args.send[0], float(args.send[1]))
        return
    only = set(args.only.split(","))
    table: list[Row] = []
    with tempfile.TemporaryDirectory(prefix="roquet-bench-") as folder:
        if "drain" in only:
            table += drain(Path(folder) / "drain", args.messages)
        if "cpp" in only:
            table += beside_cpp(Path(folder) / "cpp", args.messages // 5)
    show(table)
    save(table, args.out, peer="other")


if __name__ == "__main__":
    main()
