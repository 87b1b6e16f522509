"""Blocking client: a producer, and a consumer whose loop acknowledges block by block.

Needs a cluster: `roquet dev`, and NAMESRV_ADDR=127.0.0.1:9876 in the environment.
"""

from roquet.client import ConsumeFrom, ConsumerConfig
from roquet.client.blocking import Producer, PushConsumer

FIRST = ConsumerConfig(consume_from=ConsumeFrom.FIRST)

with Producer(group="shop") as producer:
    for number in range(3):
        print(producer.send("Letters", b"letter %d" % number).message_id)

with PushConsumer(group="post", topic="Letters", config=FIRST) as consumer:
    for message in consumer.fetch(3, timeout_ms=10_000):
        with message:  # its end acknowledges, an exception has it come again
            print(message.body.decode(), "from", message.born_host)
