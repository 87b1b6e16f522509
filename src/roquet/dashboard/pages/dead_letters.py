"""Dead letters: counted by reason, shown, chosen ones sent again, all exported."""

from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from typing import Final
from urllib.parse import quote, urlencode

import msgspec
from starlette.datastructures import FormData
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.routing import Route

from roquet.admin import dead_letters as admin_letters
from roquet.admin.dead_letters import DeadLetter
from roquet.dashboard.changes import change, done
from roquet.dashboard.facts import dead_letters
from roquet.dashboard.facts.dead_letters import LetterRow
from roquet.dashboard.facts.message_rows import MessageRow, message_row
from roquet.dashboard.facts.messages import json_fields
from roquet.dashboard.form_fields import list_part
from roquet.dashboard.masking import mask_body
from roquet.dashboard.rendering import page
from roquet.dashboard.request_context import (
    admin_of,
    dashboard_of,
    group_in_path,
    open_letter_reader,
    open_producer,
    visitor_of,
)
from roquet.model.errors import RoquetError
from roquet.model.printable_text import quantity

ORDERS: Final[Mapping[str, Callable[[str], str]]] = {"name": str}

PLACE_FIELD: Final = "letter"
"""Field of a form that names a chosen letter, once for each."""


BEFORE_FIELD: Final = "before"
"""Field of an address that names the place before which a queue's letters are shown."""

QUEUES_MAX: Final = 1_000
"""Places in an address; a dead-letter topic has a queue on each broker."""


REASONS_MAX: Final = 50
"""Kinds of letters in the table of counts; tags may be many."""


class ShownLetter(msgspec.Struct, frozen=True, kw_only=True):
    """A dead letter in a table."""

    place: str
    origin_topic: str | None
    """None: it does not say, and cannot be sent again."""
    reason: str
    row: MessageRow


async def list_groups(request: Request) -> Response:
    """Groups with dead letters, by search and page."""
    admin = admin_of(request)
    names = admin_letters.groups_of(await admin.topics())
    part = list_part(names, request.query_params, str, ORDERS)
    return page(
        request,
        "dead_letters.html",
        groups=part,
        rows=await dead_letters.count_letters(admin, part.rows),
    )


async def show_group(request: Request) -> Response:
    """One page of the dead letters of a group, and counts of all by reason."""
    group = group_in_path(request)
    before = request.query_params.getlist(BEFORE_FIELD)[:QUEUES_MAX]
    tallies, user = dashboard_of(request).letter_tallies, visitor_of(request).user
    async with open_letter_reader(request) as reader:
        found = await dead_letters.letters_of(
            admin_of(request), reader, group, tallies, user=user, before=before
        )
    return page(
        request,
        "letters.html",
        group=group,
        total=found.total,
        not_resent=found.not_resent,
        newer=found.newer,
        reasons=found.reasons,
        counted=found.counted,
        letters=_shown(request, found.letters),
        next_page=urlencode([(BEFORE_FIELD, place) for place in found.next_page]),
        only_html={"reasons_max": REASONS_MAX},
    )


async def preview_resend(request: Request) -> Response:
    """The chosen letters, and the topics to which they would be sent."""
    group = group_in_path(request)
    places = request.query_params.getlist(PLACE_FIELD)
    async with open_letter_reader(request) as reader:
        letters = await dead_letters.chosen(reader, group, places)
    rows = [
        LetterRow(place=dead_letters.place_of(letter), letter=letter, reason="")
        for letter in letters
    ]
    shown = _shown(request, rows)
    return page(
        request,
        "resend.html",
        group=group,
        letters=[letter for letter in shown if letter.origin_topic is not None],
        lost=[letter for letter in shown if letter.origin_topic is None],
    )


@change("dead-letters.resend")
async def resend(request: Request, form: FormData) -> Response:
    """Send the chosen letters again to the topics that they came from."""
    group = group_in_path(request)
    places = [str(place) for place in form.getlist(PLACE_FIELD)]
    async with open_letter_reader(request) as reader:
        letters = await dead_letters.chosen(reader, group, places)
    async with open_producer(request) as producer:
        await admin_letters.resend(producer, letters, lambda _: None)
    count = quantity(len(letters), "message")
    path = f"/dead-letters/{quote(group, safe='')}"
    return done(request, path, f"{count} sent again; the dead letters stay")


async def export(request: Request) -> Response:
    """All letters of a group as JSON lines; the last line says whether they are complete."""
    group = group_in_path(request)
    await dead_letters.has_letters(admin_of(request), group)
    dashboard = dashboard_of(request)
    rules, user = dashboard.settings.mask_rules, visitor_of(request).user

    async def lines() -> AsyncIterator[bytes]:
        count = 0
        try:
            with dashboard.streams.take(user):
                async for letter in _every_letter(request, group):
                    masked = mask_body(rules, letter.message)
                    fields = json_fields(letter.message, masked.data)
                    more = {"origin_topic": letter.origin_topic, "masked": masked.is_masked}
                    yield msgspec.json.encode({**fields, **more}) + b"\n"
                    count += 1
            end: dict[str, object] = {"complete": True, "letters": count}
        except RoquetError as error:
            end = {"complete": False, "letters": count, "error": str(error)}
        yield msgspec.json.encode(end) + b"\n"

    name = group.replace("%", "_").replace("|", "_")
    headers = {"content-disposition": f'attachment; filename="dead-letters-{name}.jsonl"'}
    return StreamingResponse(lines(), media_type="application/x-ndjson", headers=headers)


async def _every_letter(request: Request, group: str) -> AsyncIterator[DeadLetter]:
    async with open_letter_reader(request) as reader:
        async for letter in dead_letters.export(reader, group):
            yield letter


def _shown(request: Request, rows: Sequence[LetterRow]) -> Sequence[ShownLetter]:
    rules = dashboard_of(request).settings.mask_rules
    return [
        ShownLetter(
            place=one.place,
            origin_topic=one.letter.origin_topic,
            reason=one.reason,
            row=message_row(one.letter.message, rules),
        )
        for one in rows
    ]


ROUTES = [
    Route("/dead-letters", list_groups),
    Route("/dead-letters/{name}", show_group),
    Route("/dead-letters/{name}/export", export),
    Route("/dead-letters/{name}/resend", preview_resend, methods=["GET"]),
    Route("/dead-letters/{name}/resend", resend, methods=["POST"]),
]
