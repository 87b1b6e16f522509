"""The official Python client of RocketMQ 5, by commands of one line each on standard output.

grpc_client.py ADDRESS SECONDS    sends a message of each type and prints what consumers get
"""

import json
import os
import sys
import time
from datetime import UTC, datetime

from rocketmq import (
    ClientConfiguration,
    ConsumeResult,
    Credentials,
    FilterExpression,
    Message,
    MessageListener,
    Producer,
    PushConsumer,
    SimpleConsumer,
    TransactionChecker,
    TransactionResolution,
)

BEGAN = datetime.now(UTC)


def say(event, **fields):
    line = {"event": event, "at": round((datetime.now(UTC) - BEGAN).total_seconds(), 2), **fields}
    os.write(1, (json.dumps(line) + "\n").encode())


def message(topic, body, **fields):
    made = Message()
    made.topic, made.body = topic, body.encode()
    for name, value in fields.items():
        setattr(made, name, value)
    return made


class Listener(MessageListener):
    def consume(self, received):
        body, attempt = received.body.decode(), received.delivery_attempt
        say("push", topic=received.topic, body=body, attempt=attempt, tag=received.tag)
        fails = body == "fails once" and attempt == 1
        return ConsumeResult.FAILURE if fails else ConsumeResult.SUCCESS


class Checker(TransactionChecker):
    def check(self, received):
        say("check", body=received.body.decode())
        return TransactionResolution.COMMIT


def main(address, seconds):
    configuration = ClientConfiguration(address, Credentials())
    for topic in ("NORM", "FIFOT", "DELAYT", "TXT"):
        PushConsumer(
            configuration, f"push-{topic}", Listener(), {topic: FilterExpression()}
        ).startup()
    simple = SimpleConsumer(configuration, "simple", {"NORM": FilterExpression("a")})
    simple.startup()
    time.sleep(2)
    producer = Producer(configuration, ("NORM", "FIFOT", "DELAYT"))
    producer.startup()
    producer.send(message("NORM", "tagged a", tag="a", keys="k1"))
    producer.send(message("NORM", "fails once", tag="b"))
    for number in range(5):
        producer.send(message("FIFOT", f"step {number}", message_group="g1"))
    later = int(datetime.now(UTC).timestamp()) + 3
    producer.send(message("DELAYT", "delayed", delivery_timestamp=later))
    recalled = producer.send(message("DELAYT", "recalled", delivery_timestamp=later))
    producer.recall_message("DELAYT", recalled.recall_handle)
    say("sent")
    transactional = Producer(configuration, ("TXT",), Checker())
    transactional.startup()
    for end in ("commit", "rollback", "nothing"):
        transaction = transactional.begin_transaction()
        transactional.send(message("TXT", f"tx {end}"), transaction)
        getattr(transaction, end, lambda: None)()
    for received in simple.receive(32, 15) or ():
        say("simple", body=received.body.decode(), tag=received.tag)
        simple.ack(received)
    time.sleep(seconds)
    os._exit(0)


main(sys.argv[1], float(sys.argv[2]))
