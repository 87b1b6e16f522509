"""Runs inside the environment of PyPI's `rocketmq==0.4.4`: sends or consumes, and prints JSON."""

import json
import os
import sys
import threading
import time

from rocketmq.client import Message, Producer, PushConsumer


def say(**facts: object) -> None:
    """One line of JSON."""
    sys.stdout.write(json.dumps(facts) + "\n")
    sys.stdout.flush()


def text(value: bytes | str) -> str:
    """The library gives bytes or text, as it likes."""
    return value.decode() if isinstance(value, bytes) else value


def send(namesrv: str, topic: str, count: int) -> None:
    """Single messages, then one batch."""
    producer = Producer("PID_cpp")
    producer.set_namesrv_addr(namesrv)
    producer.start()

    def message(number: int) -> Message:
        made = Message(topic)
        made.set_keys(f"key{number}")
        made.set_tags("even" if number % 2 == 0 else "odd")
        made.set_property("number", str(number))
        made.set_body(f"body {number}")
        return made

    half = count // 2
    for number in range(half):
        receipt = producer.send_sync(message(number))
        say(sent=number, status=int(receipt.status), id=receipt.msg_id)
    receipt = producer.send_batch([message(number) for number in range(half, count)])
    say(sent="batch", status=int(receipt.status))
    producer.shutdown()


def consume(namesrv: str, topic: str, count: int, expression: str) -> None:
    """A push consumer until it has seen enough, or half a minute has passed."""
    enough = threading.Event()
    seen = []

    def handle(message: object) -> None:
        seen.append(message)
        say(body=text(message.body), tag=text(message.tags), key=text(message.keys))
        if len(seen) >= count:
            enough.set()

    consumer = PushConsumer("CID_cpp")
    consumer.set_namesrv_addr(namesrv)
    consumer.subscribe(topic, handle, expression)
    consumer.start()
    enough.wait(30)
    time.sleep(1)
    consumer.shutdown()


if __name__ == "__main__":
    {"send": send, "consume": consume}[sys.argv[1]](
        sys.argv[2], sys.argv[3], int(sys.argv[4]), *sys.argv[5:]
    )
    sys.stdout.flush()
    os._exit(0)  # the library crashes when the interpreter ends in order
