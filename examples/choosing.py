"""One topic read in three ways: pushed to a function, pulled by offset, popped one by one.

Needs a cluster: `roquet dev`, and NAMESRV_ADDR=127.0.0.1:9876 in the environment.
"""

from roquet.client import ConsumeFrom, ConsumerConfig
from roquet.client.blocking import PopConsumer, Producer, PullConsumer, PushConsumer

FIRST = ConsumerConfig(consume_from=ConsumeFrom.FIRST)

with Producer() as producer:
    for number in range(12):
        producer.send("Parcels", b"parcel %d" % number)

with PushConsumer(group="push", topic="Parcels", config=FIRST) as pushed:
    messages = pushed.fetch(12, timeout_ms=20_000)
    for message in messages:
        message.ack()
    print("pushed", len(messages))

with PullConsumer(group="pull") as puller:
    queues = puller.queues("Parcels")
    results = [puller.pull(queue, puller.min_offset(queue)) for queue in queues]
    print("pulled", sum(len(result.messages) for result in results))

with PopConsumer(group="pop", topic="Parcels", config=FIRST) as popped:
    count = 0
    for parcel in popped:
        parcel.ack()
        count += 1
        if count == 12:
            break
    print("popped", count)
