"""Pin a group's queues to one machine with a strategy of your own; others take over without it.

Say that the handlers write to a disk which only that machine has. A strategy is a function of the
sorted queues and members, and all members must use the same: it decides from these two alone.

Needs a cluster: `roquet dev`, and NAMESRV_ADDR=127.0.0.1:9876 in the environment.
"""

import asyncio
from collections.abc import Sequence

from roquet.client import ConsumeFrom, ConsumerConfig, Producer, PushConsumer, ReceivedMessage
from roquet.rules.allocate import GroupAssignment, MessageQueues, average

MACHINE = "10.0.0.7"


def on_one_machine(queues: MessageQueues, members: Sequence[str]) -> GroupAssignment:
    """Members are called `address@process`: those of MACHINE share all, unless there are none."""
    there = [member for member in members if member.startswith(f"{MACHINE}@")]
    return {**dict.fromkeys(members, ()), **average(queues, there or members)}


async def main() -> None:
    async with Producer() as producer:
        await producer.send("Uploads", b"report.pdf")

    config = ConsumerConfig(
        strategy=on_one_machine,
        consume_from=ConsumeFrom.FIRST,
        client_ip=MACHINE,  # here, so that this runs anywhere: the default is the real address
    )
    async with PushConsumer(group="disk", topic="Uploads", config=config) as consumer:
        consumer.on_assigned(lambda queues: print("pinned here:", *queues))

        async def store(message: ReceivedMessage) -> None:
            print("stored", message.body.decode())
            consumer.stop()  # a service would go on until SIGTERM

        await consumer.run(store)


asyncio.run(main())
