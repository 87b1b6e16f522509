"""Commands and messages: headers, fields and empty bodies on their way through a broker."""

from typing import Annotated, Any

import pytest
from faststream import Context
from faststream.response import ensure_response
from faststream.response.publish_type import PublishType

from roquet.client import MessageIllegal, UsageError
from roquet.integrations.faststream import RocketBroker, RocketMessage, TestRocketBroker
from roquet.integrations.faststream.messages import (
    EMPTY_BODY,
    PublishOptions,
    RocketPublishCommand,
    RocketResponse,
)

Message = Annotated[RocketMessage, Context("message")]


def command(options: PublishOptions) -> RocketPublishCommand:
    kind = PublishType.PUBLISH
    return RocketPublishCommand(b"x", destination="orders", _publish_type=kind, **options)


def test_headers_become_properties_as_texts() -> None:
    sent = command({"headers": {"tries": 3}, "properties": {"region": "eu"}}).message(b"x", None)
    assert sent.properties == {"region": "eu", "tries": "3"}


def test_what_faststream_says_of_a_message_wins_over_headers_of_the_same_names() -> None:
    made = command({"headers": {"correlation_id": "theirs"}, "correlation_id": "ours"})
    assert made.message(b"1", "application/json").properties == {
        "content-type": "application/json",
        "correlation_id": "ours",
    }


def test_an_empty_body_is_a_byte_with_a_mark() -> None:
    sent = command({}).message(b"", None)
    assert (sent.body, sent.properties) == (b"\0", {EMPTY_BODY: "true"})


def test_a_misspelt_field_is_refused_with_a_suggestion() -> None:
    with pytest.raises(UsageError, match="order_key"):
        command({"order_kee": "7"}).message(b"x", None)  # type: ignore[typeddict-unknown-key]


def test_a_result_keeps_its_fields() -> None:
    result = ensure_response(RocketResponse(1, tag="paid", keys=["7"], headers={"a": "b"}))
    made = RocketPublishCommand.from_cmd(result.as_publish_command())
    sent = made.message(b"1", None)
    assert (sent.tag, sent.keys, sent.properties) == ("paid", ("7",), {"a": "b"})


def test_a_sequence_is_a_batch_only_for_publishers_of_batches() -> None:
    result = ensure_response([1, 2]).as_publish_command()
    assert RocketPublishCommand.from_cmd(result).batch_bodies == ([1, 2],)
    assert RocketPublishCommand.from_cmd(result, batch=True).batch_bodies == (1, 2)


async def test_headers_of_a_message_can_be_sent_on_and_an_empty_body_is_empty_again() -> None:
    broker = RocketBroker("127.0.0.1:1", logger=None)
    taken: list[tuple[str, Any]] = []

    @broker.subscriber("first", group="one")
    async def forward(body: str, message: Message) -> RocketResponse:
        return RocketResponse(body, headers=message.headers)

    broker.publisher("second")(forward)

    @broker.subscriber("second", group="two")
    async def take(body: str, message: Message) -> None:
        taken.append((body, message.headers["trace"]))

    async with TestRocketBroker(broker) as tested:
        await tested.publish("", "first", headers={"trace": "1"}, tag="new", keys="7")
    assert taken == [("", "1")]


async def test_a_header_with_a_name_of_the_system_is_refused() -> None:
    async with TestRocketBroker(RocketBroker("127.0.0.1:1", logger=None)) as tested:
        with pytest.raises(MessageIllegal, match="KEYS"):
            await tested.publish("x", "orders", headers={"KEYS": "7"})
