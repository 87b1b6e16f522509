"""Tasks of taskiq by RocketMQ: results, a delay, a retry.

    pip install 'roquet[taskiq]'
    export NAMESRV_ADDR=127.0.0.1:9876
    taskiq worker taskiq_app:broker        # in one terminal
    python taskiq_app.py                   # in another one

A worker that dies loses no task: another one gets it once its time is over.
"""

import asyncio

from taskiq import SimpleRetryMiddleware

from roquet.integrations.taskiq import RocketMQBroker, RocketMQResultBackend

results: RocketMQResultBackend[object] = RocketMQResultBackend(topic="TaskResults")
broker = (
    RocketMQBroker(topic="Tasks", group="workers")
    .with_result_backend(results)
    .with_middlewares(SimpleRetryMiddleware(default_retry_count=3))
)

tries: list[int] = []


@broker.task("add")
async def add(a: int, b: int) -> int:
    return a + b


@broker.task("flaky", retry_on_error=True)
async def flaky() -> str:
    tries.append(1)
    if len(tries) < 2:
        raise OSError("the other service is away")
    return f"done by try {len(tries)}"


async def main() -> None:
    await broker.startup()
    task = await add.kiq(2, 3)
    print("2 + 3 =", (await task.wait_result(timeout=30)).return_value)
    later = await add.kicker().with_labels(delay=1.5).kiq(20, 22)  # waits at the broker
    again = await flaky.kiq()
    print((await again.wait_result(timeout=30)).return_value)
    print("20 + 22 =", (await later.wait_result(timeout=30)).return_value)
    await broker.shutdown()


if __name__ == "__main__":
    asyncio.run(main())
