"""One group in several processes: each has its own queues, and one that ends leaves them to others.

Needs a cluster: `roquet dev`, and NAMESRV_ADDR=127.0.0.1:9876 in the environment.
"""

import multiprocessing
import os
import time
from collections.abc import Callable

from roquet.client import ConsumeFrom, ConsumerConfig
from roquet.client.blocking import Producer, PushConsumer

CONFIG = ConsumerConfig(consume_from=ConsumeFrom.FIRST, rebalance_period_ms=1_000)
COUNT = 200


def work(handled: Callable[[int], None]) -> None:
    """A process of its own: it makes its client after the start, never before a fork."""
    with PushConsumer(group="readers", topic="Meters", config=CONFIG) as consumer:
        consumer.run(lambda _: handled(os.getpid()))  # until SIGTERM, then in good order


def main() -> None:
    context = multiprocessing.get_context("spawn")
    with context.Manager() as manager, Producer() as producer:
        handled = manager.list()
        members = [context.Process(target=work, args=(handled.append,)) for _ in range(2)]
        for member in members:
            member.start()
        for number in range(COUNT):
            producer.send("Meters", b"%d kWh" % number)
            time.sleep(0.02)  # meters report now and then
        while len(handled) < COUNT:
            time.sleep(0.1)
        for member in members:
            member.terminate()  # SIGTERM
            member.join()
        codes = [member.exitcode for member in members]
        print(COUNT, "messages,", len(set(handled)), "processes, exit codes", codes)


if __name__ == "__main__":
    main()
