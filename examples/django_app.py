"""A Django project in one file: a view that sends, and a management command's worth of consumer.

NAMESRV_ADDR=127.0.0.1:9876 python django_app.py runserver
NAMESRV_ADDR=127.0.0.1:9876 python django_app.py          # sends and consumes one, and ends
"""

import sys
from functools import cache

import django
from django.conf import settings
from django.core.management import execute_from_command_line
from django.http import HttpRequest, JsonResponse
from django.test import Client
from django.urls import path

from roquet.client import ConsumeFrom, ConsumerConfig
from roquet.client.blocking import Producer, PushConsumer

FIRST = ConsumerConfig(consume_from=ConsumeFrom.FIRST)


@cache
def producer() -> Producer:
    """One for each process, made by its first request: servers fork before that."""
    opened = Producer()
    opened.start()
    return opened


def order(request: HttpRequest) -> JsonResponse:
    receipt = producer().send("WebOrders", request.body, keys=[request.GET["customer"]])
    return JsonResponse({"message_id": receipt.message_id}, status=202)


urlpatterns = [path("orders", order)]


def consume(count: int) -> None:
    """In a project: the handle() of a management command, with consumer.run(handler)."""
    with PushConsumer(group="web-billing", topic="WebOrders", config=FIRST) as consumer:
        for message in consumer.fetch(count, timeout_ms=20_000):
            with message:  # its end acknowledges, an exception has it come again
                print("billing", message.key, message.body.decode())


def main() -> None:
    settings.configure(ROOT_URLCONF=__name__, ALLOWED_HOSTS=["*"], SECRET_KEY="an example")
    django.setup()
    if sys.argv[1:]:
        execute_from_command_line(sys.argv)
        return
    client = Client()
    answer = client.post("/orders?customer=ada", b"42 EUR", content_type="text/plain")
    print("answered", answer.status_code)
    producer().close()
    consume(1)


if __name__ == "__main__":
    main()
