"""Send: one message from a form, as it is typed or made from an old one."""

import binascii
import re
from typing import Final

from starlette.datastructures import FormData
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from roquet.dashboard.changes import change, done, form_text
from roquet.dashboard.form_fields import text_of
from roquet.dashboard.masking import mask_body
from roquet.dashboard.pages.messages import stored_message, topic_names
from roquet.dashboard.rendering import page
from roquet.dashboard.request_context import admin_of, dashboard_of, open_producer
from roquet.model import properties
from roquet.model.errors import UsageError
from roquet.model.message import Message, StoredMessage

HEX: Final = "hex"
UNSENT: Final = frozenset({"body", "properties"})
"""Fields that the audit log leaves out: it is not for the content of messages."""


async def show_form(request: Request) -> Response:
    """The form; with the place of a message in the address it is filled from that."""
    query = request.query_params
    fields = dict.fromkeys(("topic", "tag", "keys", "order_key", "properties", "body"), "")
    fields |= {"topic": text_of(query, "topic") or "", "notation": "text"}
    note = ""
    if fields["topic"]:
        await admin_of(request).known_route(fields["topic"])
    if text_of(query, "broker") is not None:
        found = await stored_message(request)
        masked = mask_body(dashboard_of(request).settings.mask_rules, found)
        fields |= form_fields(found)
        note = found.body_note and f"the body is {found.body_note}"
        if masked.is_masked:
            note = "a rule hides the old body: type one"
            fields |= {"body": "", "notation": "text"}
    return page(
        request,
        "send.html",
        only_html={"topics": await topic_names(admin_of(request)), "note": note},
        fields=fields,
    )


def form_fields(message: StoredMessage) -> dict[str, str]:
    """The fields of the form that send a message once more."""
    not_sent = properties.RESERVED | {properties.DEAD_LETTER_REASON}
    users = {n: v for n, v in message.properties.items() if n not in not_sent}
    text = message.body.decode("utf-8", "replace")
    # A form would change carriage returns, and takes no control characters.
    is_text = text.encode() == message.body and "\r" not in text and "\x00" not in text
    return {
        "topic": message.topic,
        "tag": message.tag or "",
        "keys": " ".join(message.keys),
        "order_key": message.properties.get(properties.SHARDING_KEY, ""),
        "properties": "\n".join(f"{name}={value}" for name, value in sorted(users.items())),
        "body": text if is_text else message.body.hex(" "),
        "notation": "text" if is_text else HEX,
    }


@change("message.send", unlogged=UNSENT)
async def send(request: Request, form: FormData) -> Response:
    """Send the message of the form to a topic that exists."""
    message = message_of(form)
    await admin_of(request).known_route(message.topic)  # a slip of the pen creates no topic
    async with open_producer(request) as producer:
        receipt = await producer.send(message)
    queue = receipt.queue
    place = f"{queue.broker_name} queue {queue.queue_id} offset {receipt.queue_offset}"
    durable = "" if receipt.ok else f"; it is less durable than promised: {receipt.status.value}"
    return done(request, "/messages/new", f"sent {receipt.message_id} to {place}{durable}")


def message_of(form: FormData) -> Message:
    """The message that a form describes. Raises UsageError for a field that cannot be used."""
    text = form.get("body")
    if not isinstance(text, str) or not text:
        raise UsageError("the body is empty: no message is")
    return Message(
        form_text(form, "topic"),
        _body(text, form_text(form, "notation", "text")),
        tag=form_text(form, "tag", "") or None,
        keys=properties.split_keys(form_text(form, "keys", "")),
        order_key=form_text(form, "order_key", "") or None,
        properties=_properties(form_text(form, "properties", "")),
    )


def _body(text: str, notation: str) -> bytes:
    if notation == HEX:
        try:
            return binascii.unhexlify("".join(text.split()))
        except (binascii.Error, ValueError):
            raise UsageError("the body is no hex: pairs of digits as in `00 ff`") from None
    if notation != "text":
        raise UsageError(f"{notation!r:.100} is no notation of a body: text or hex")
    return text.replace("\r\n", "\n").encode("utf-8", "replace")  # forms send CR LF


def _properties(text: str) -> dict[str, str]:
    """Properties, one NAME=VALUE a line."""
    pairs = [line.partition("=") for line in re.split("\r?\n", text) if line.strip()]
    for name, equals, _ in pairs:
        if not name.strip() or not equals:
            raise UsageError(f"property {name!r:.100}: NAME=VALUE is wanted, one a line")
    return {name.strip(): value for name, _, value in pairs}


ROUTES = [
    Route("/messages/new", show_form, methods=["GET"]),
    Route("/messages/new", send, methods=["POST"]),
]
