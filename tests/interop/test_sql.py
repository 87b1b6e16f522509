"""SQL92 filters: genuine consumers on our broker, ours on theirs, and both brokers alike."""

import asyncio
from pathlib import Path

import pytest

from harness import genuine
from roquet.client import (
    ConsumeFrom,
    ConsumerConfig,
    Message,
    PopConsumer,
    Producer,
    PullConsumer,
    PushConsumer,
)
from roquet.model.errors import CallRefused

pytestmark = pytest.mark.interop

PROGRAM = str(Path(__file__).with_name("SqlConsumer.java"))
FROM_FIRST = ConsumerConfig(consume_from=ConsumeFrom.FIRST)
MISREADING = ConsumerConfig(consume_from=ConsumeFrom.FIRST, sql_compatibility=True)
SQL = "amount > 90 AND region IN ('eu', 'us') AND missing IS NULL"
COUNT = 120
WANTED = {str(n) for n in range(91, COUNT) if n % 3 != 2}

EXPRESSIONS = [
    SQL,
    "amount BETWEEN 10 AND 12 OR region = 'asia' AND amount < 5",
    "NOT (amount >= 3)",
    "price > 30.25",
    "price = 60.5 OR price < 0.5",
    "text CONTAINS 'it''s' OR text STARTSWITH '中'",
    "text NOT ENDSWITH 'x' AND amount <= 9",
    "flag = TRUE AND amount NOT IN ('6', '12')",
    "odd = 7",
    "odd > 6",
    "odd <> 7",
    "odd > 6.5",
    "amount > odd",
    "odd IS NOT NULL AND NOT (odd IS NULL)",
    "TAGS = 'even' AND KEYS IS NOT NULL",
    "text",
]
MISREAD = ["amount = 0x10", "amount = 5 nonsense", "region LIKE 'e%'", "amount = 05"]


def messages(topic: str) -> list[Message]:
    odds = ["7", "07", "+7", "7.0", "seven", "7d", "1e1", "NaN", "-0.0", "2147483648", "\u0667"]
    return [
        Message(
            topic, b"%d" % n, tag="even" if n % 2 == 0 else "odd", keys=(f"k{n}",),
            properties={
                "amount": str(n), "region": ("eu", "us", "asia")[n % 3], "price": f"{n / 2}",
                "text": ("it's", "中文", "x")[n % 3], "flag": ("true", "FALSE", "yes")[n % 3],
                **({"odd": odds[n % len(odds)]} if n % 2 else {}),
            },
        )
        for n in range(COUNT)
    ]  # fmt: skip


async def fill(namesrv: str, topic: str) -> None:
    async with Producer(namesrv) as producer:
        await producer.send_many(messages(topic))


async def pulled(namesrv: str, topic: str, sql: str) -> set[str]:
    """What a broker holds of a topic that an expression wants."""
    bodies = set()
    async with PullConsumer(namesrv, group="sql-pull", config=MISREADING) as reader:
        for queue in await reader.queues(topic):
            offset, end = 0, await reader.max_offset(queue)
            while offset < end:
                result = await reader.pull(queue, offset, sql=sql)
                bodies |= {one.body.decode() for one in result.messages}
                offset = result.next_offset
    return bodies


async def test_both_brokers_choose_the_same_messages(ours: str, theirs: genuine.Genuine) -> None:
    for namesrv in (ours, theirs.namesrv):
        await fill(namesrv, "SqlSame")
    for sql in EXPRESSIONS:
        chosen = await pulled(ours, "SqlSame", sql)
        assert chosen == await pulled(theirs.namesrv, "SqlSame", sql), sql
    assert await pulled(ours, "SqlSame", SQL) == WANTED


async def test_ours_refuses_what_the_genuine_broker_misreads(
    ours: str, theirs: genuine.Genuine
) -> None:
    for namesrv in (ours, theirs.namesrv):
        await fill(namesrv, "SqlMisread")
    for sql in MISREAD:
        assert await pulled(theirs.namesrv, "SqlMisread", sql) <= {"0", "5"}, sql
        with pytest.raises(CallRefused, match=r"AND, OR or the end|there is no LIKE"):
            await pulled(ours, "SqlMisread", sql)


async def test_our_consumers_choose_from_the_genuine_broker(theirs: genuine.Genuine) -> None:
    await fill(theirs.namesrv, "SqlTheirs")
    push = PushConsumer(
        theirs.namesrv, group="sql-push", topic="SqlTheirs", sql=SQL, config=FROM_FIRST
    )
    async with push:
        messages = await push.fetch(len(WANTED), 30_000)
        assert {one.body.decode() for one in messages} == WANTED
        assert await push.next(2_000) is None
    pop = PopConsumer(
        theirs.namesrv, group="sql-pop", topic="SqlTheirs", sql=SQL, config=FROM_FIRST
    )
    async with pop:
        seen = set[str]()
        while len(seen) < len(WANTED) and (one := await pop.next(20_000)) is not None:
            seen.add(one.body.decode())
            await one.ack()
        assert seen == WANTED


async def java_gets(namesrv: str, group: str, topic: str, sql: str, home: Path) -> list[str]:
    command = ["java", "-cp", f"{genuine.jars()}/*", PROGRAM, namesrv, group, topic, sql]
    command += [str(len(WANTED)), "60"]
    output = await asyncio.to_thread(genuine.run, command, seconds=120, home=home)
    return [line for line in output.splitlines() if line.startswith(("got ", "refused "))]


async def test_a_java_consumer_chooses_from_our_broker(
    java: None, ours: str, tmp_path: Path
) -> None:
    await fill(ours, "SqlJava")
    lines = await java_gets(ours, "sql-java", "SqlJava", SQL, tmp_path / "java")
    assert sorted(lines) == sorted(f"got {body}" for body in WANTED), "all came back, none else"


async def test_a_java_consumer_gets_the_error_of_its_expression(
    java: None, ours: str, tmp_path: Path
) -> None:
    await fill(ours, "SqlBad")
    [line] = await java_gets(ours, "sql-bad", "SqlBad", "amount LIKE '9%'", tmp_path / "java")
    assert line.startswith("refused 23 ")
    assert "there is no LIKE" in line
    assert "at character 8" in line
