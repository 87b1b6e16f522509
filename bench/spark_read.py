"""Rows a second from a topic to Spark's noop sink, the broker included; prints JSON."""

import argparse
import asyncio
import contextlib
import json
import os
import subprocess
import sys
import time
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parent / "src"), str(HERE.parent / "tools")]
os.environ["PYTHONPATH"] = str(HERE.parent / "src")

import genuine  # noqa: E402

TOPIC = "SparkBench"
QUEUES = 8


async def create(broker: str, topic: str = TOPIC, queues: int = QUEUES) -> None:
    """The topic of the queues that are already there."""
    from roquet.net.channel import Channel
    from roquet.wire.calls.topic import CreateTopic

    host, _, port = broker.rpartition(":")
    channel = await Channel.connect(host, int(port))
    await channel.call(
        CreateTopic(topic=topic, read_queue_nums=queues, write_queue_nums=queues, perm=6)
    )
    await channel.close()


def main() -> None:
    """Fill, serve, read three times."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--messages", type=int, default=4_000_000)
    parser.add_argument("--columns", default="", help="only these, comma separated")
    args = parser.parse_args()
    args.folder.mkdir(parents=True, exist_ok=True)
    data = args.folder / "data"
    subprocess.run(
        [sys.executable, str(HERE / "fill.py"), str(data), "--messages", str(args.messages),
         "--size", "200", "--topic", TOPIC, "--queues", str(QUEUES)], check=True,
    )  # fmt: skip
    ports = genuine.free_port(), genuine.free_port()
    command = [sys.executable, "-m", "roquet", "dev", "--data", str(data)]
    command += ["--namesrv-port", str(ports[0]), "--port", str(ports[1])]
    log = args.folder / "dev.log"
    with contextlib.ExitStack() as stack:
        child = stack.enter_context(genuine.process(command, args.folder / "home", log))
        genuine.wait_for(log, "ready", child)
        asyncio.run(create(f"127.0.0.1:{ports[1]}"))
        time.sleep(1)
        from roquet.spark.session import session

        spark = session("bench", master="local[2]")
        reader = spark.read.format("roquet").option("namesrv", f"127.0.0.1:{ports[0]}")
        frame = reader.option("topic", TOPIC).load()
        if args.columns:
            frame = frame.select(*args.columns.split(","))
        best = 0.0
        for _ in range(3):
            began = time.monotonic()
            frame.write.format("noop").mode("overwrite").save()
            best = max(best, args.messages / (time.monotonic() - began))
        rows = frame.count()
        spark.stop()
    print(json.dumps({"rows_per_second": best, "rows": rows}))


if __name__ == "__main__":
    main()
