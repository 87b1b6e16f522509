"""The official Python client of RocketMQ 5; harness/grpc_clients.py says what it is told."""

import os
import sys
import time

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

CONFIGURATION = ClientConfiguration(sys.argv[1], Credentials())
OPEN = {}


def say(*words):
    os.write(1, ("\t".join(map(str, words)) + "\n").encode())


class Listener(MessageListener):
    def __init__(self, group):
        self.group = group

    def consume(self, message):
        what, number, *_ = [*message.body.decode().split(), "", ""]
        say("handled", self.group, message.delivery_attempt, message.body.decode())
        if what == "slow":
            time.sleep(int(number))
            say("finished", self.group, message.delivery_attempt, message.body.decode())
        if what == "fails" and message.delivery_attempt <= int(number):
            return ConsumeResult.FAILURE
        return ConsumeResult.SUCCESS


class Checker(TransactionChecker):
    def check(self, message):
        say("checked", message.body.decode())
        return TransactionResolution.COMMIT


def started(key, make):
    if key not in OPEN:
        client = make()
        client.startup()
        OPEN[key] = client
    return OPEN[key]


def producer(topic):
    return started(topic, lambda: Producer(CONFIGURATION, (topic,), Checker()))


def message_of(topic, kind, value, body):
    message = Message()
    message.topic, message.body = topic, body.encode()
    if kind == "NORMAL" and value:
        message.tag = value
    elif kind == "FIFO":
        message.message_group = value
    elif kind == "DELAY":
        message.delivery_timestamp = int(time.time()) + int(value)
    elif kind == "PRIORITY":
        message.priority = int(value)
    return message


def send(topic, kind, value, body):
    return [producer(topic).send(message_of(topic, kind, value, body)).recall_handle or ""]


def transact(topic, end, body):
    transaction = producer(topic).begin_transaction()
    producer(topic).send(message_of(topic, "", "", body), transaction)
    getattr(transaction, end, lambda: None)()


def recall(topic, handle):
    producer(topic).recall_message(topic, handle)


def push(group, topic, tag):
    def make():
        return PushConsumer(
            CONFIGURATION, group, Listener(group), {topic: FilterExpression(tag or "*")}
        )

    started((group, topic), make)


def receive(group, topic, tag, end):
    def make():
        return SimpleConsumer(CONFIGURATION, group, {topic: FilterExpression(tag or "*")}, 5)

    consumer = started((group, topic), make)
    messages = consumer.receive(32, 15) or ()
    for message in messages:
        if end == "ack":
            consumer.ack(message)
        elif end == "change":
            consumer.change_invisible_duration(message, 10)
    return [f"{message.delivery_attempt} {message.body.decode()}" for message in messages]


def main():
    for line in sys.stdin:
        what, *words = line.rstrip("\n").split("\t")
        try:
            say("answer", *(globals()[what](*words) or ()))
        except Exception as error:
            say("failed", repr(error).replace("\n", " "))
    os._exit(0)


main()
