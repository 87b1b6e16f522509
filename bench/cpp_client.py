"""Runs inside the environment of PyPI's `rocketmq==0.4.4`: the same work as bench/clients.py."""

import argparse
import json
import os
import sys
import threading
import time

try:
    from rocketmq.client import Message, Producer, PushConsumer
except ImportError:  # outside that environment: only --help works
    Message = Producer = PushConsumer = None

TOPIC = "ClientBench"
IN_FLIGHT = 64
QUIET_S = 3


def tell(times: list[float]) -> None:
    """One line of JSON, of all but the first tenth."""
    times.sort()
    warm = times[len(times) // 10 :]
    rate = (len(warm) - 1) / (warm[-1] - warm[0])
    cpu_us = time.process_time() / len(times) * 1e6
    sys.stdout.write(json.dumps({"rate": rate, "cpu_us": cpu_us, "messages": len(times)}) + "\n")
    sys.stdout.flush()


def send(namesrv: str, seconds: str) -> None:
    """So many threads, each of which sends one message after the other."""
    producer = Producer("PID_cpp_bench")
    producer.set_namesrv_addr(namesrv)
    producer.start()
    end = time.monotonic() + float(seconds)
    times: list[float] = []

    def one() -> None:
        while time.monotonic() < end:
            message = Message(TOPIC)
            message.set_body("x" * 128)
            producer.send_sync(message)
            times.append(time.monotonic())

    threads = [threading.Thread(target=one) for _ in range(IN_FLIGHT)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    tell(times)


def consume(namesrv: str, group: str) -> None:
    """Read until nothing comes any more."""
    times: list[float] = []

    def handle(_: object) -> None:
        times.append(time.monotonic())

    consumer = PushConsumer(group)
    consumer.set_namesrv_addr(namesrv)
    consumer.set_thread_count(20)
    consumer.subscribe(TOPIC, handle, "*")
    consumer.start()
    began = time.monotonic()
    while time.monotonic() - (times[-1] if times else began + 20) < QUIET_S:
        time.sleep(0.1)
    tell(times or [began, began + 1])


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    work = parser.add_mutually_exclusive_group(required=True)
    work.add_argument("--send", nargs=2, metavar=("NAMESRV", "SECONDS"))
    work.add_argument("--consume", nargs=2, metavar=("NAMESRV", "GROUP"))
    options = parser.parse_args()
    send(*options.send) if options.send else consume(*options.consume)
    os._exit(0)  # the library crashes when the interpreter ends in order
