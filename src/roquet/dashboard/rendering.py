"""Rendering: a page's facts as HTML, or as JSON for a program that asks for it."""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from functools import cache, partial
from itertools import groupby
from operator import attrgetter
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final
from urllib.parse import quote

import msgspec
from jinja2 import Environment, FileSystemLoader, StrictUndefined
from starlette.requests import Request
from starlette.responses import HTMLResponse, Response

from roquet.dashboard.dashboard import Dashboard
from roquet.dashboard.request_context import dashboard_of, visitor_of
from roquet.dashboard.visitor_rights import may_change
from roquet.model.errors import (
    CallRefused,
    ConfigError,
    FieldError,
    MessageIllegal,
    NotFound,
    UsageError,
)
from roquet.model.printable_text import printable, quantity, without_surrogates
from roquet.wire.codes import ResponseCode, release_of

DASH: Final = "\N{EN DASH}"
"""Stands for what is not known."""

MEMBER_MAX: Final = 28
"""Characters of a client id that pages show whole."""

_SIZE_UNITS: Final = ("B", "KB", "MB", "GB", "TB", "PB")


def number(value: float | None) -> str:
    """A whole number with separators; a dash for None."""
    return DASH if value is None else f"{value:,.0f}"


def count_of(values: Collection[object] | None) -> int | None:
    """The number of some values; None where they are not known."""
    return None if values is None else len(values)


def size(value: float | None) -> str:
    """Bytes in the unit that fits, by powers of 1024; a dash for None."""
    if value is None:
        return DASH
    for unit in _SIZE_UNITS[:-1]:
        if abs(value) < 1024:
            digits = 0 if unit == "B" or abs(value) >= 10 else 1
            return f"{value:.{digits}f} {unit}"
        value /= 1024
    return f"{value:.1f} {_SIZE_UNITS[-1]}"


def rate(value: float | None) -> str:
    """A number a second; a dash for None."""
    if value is None:
        return DASH
    return f"{value:.1f}/s" if 0 < abs(value) < 10 else f"{value:,.0f}/s"


def duration(ms: float | None) -> str:
    """A time span in its two largest units: `2 h 5 min`; a dash for None."""
    if ms is None:
        return DASH
    seconds = round(ms / 1000)
    if seconds < 60:
        return f"{seconds} s"
    minutes, seconds = divmod(seconds, 60)
    if minutes < 60:
        return f"{minutes} min {seconds} s" if minutes < 10 and seconds else f"{minutes} min"
    hours, minutes = divmod(minutes, 60)
    if hours < 24:
        return f"{hours} h {minutes} min" if minutes else f"{hours} h"
    days, hours = divmod(hours, 24)
    return f"{days} d {hours} h" if hours else f"{days} d"


def time(ms: int | None) -> str:
    """A time in UTC to the second; a dash for None and for times that no calendar has."""
    if ms is None or not 0 < ms < 253_402_300_800_000:
        return DASH
    return datetime.fromtimestamp(ms / 1000, UTC).strftime("%Y-%m-%d %H:%M:%S")


def percent(share: float | None) -> str:
    """A share of 1 as per cent; a dash for None."""
    return DASH if share is None else f"{share * 100:.0f} %"


def release(version: int) -> str:
    """The release that a client's version number stands for, or the number itself."""
    return release_of(version) or f"version {version}"


def segment(text: str) -> str:
    """A name as one part of an address's path, or as the value of a parameter."""
    return quote(text.encode("utf-8", "replace"), safe="")


def member_parts(client_id: str) -> tuple[str, str, str]:
    """A client id as its telling beginning, the middle that pages leave out, and its telling end.

    Clients add `#` and a time to the process id; the last digits tell those of one process apart.
    """
    whole = printable(client_id)
    if len(whole) <= MEMBER_MAX:
        return whole, "", ""
    process, mark, _ = whole.partition("#")
    head = process + mark if mark and len(process) <= MEMBER_MAX - 6 else whole[: MEMBER_MAX - 10]
    return head, whole[len(head) : -4], whole[-4:]


def groupby_order(rows: Iterable[Any], name: str) -> Iterator[tuple[Any, list[Any]]]:
    """Rows by an attribute, in their order; Jinja's own filter `groupby` sorts them."""
    for value, group in groupby(rows, key=attrgetter(name)):
        yield value, list(group)


FILTERS: Final[Mapping[str, Callable[..., Any]]] = MappingProxyType(
    {
        "number": number,
        "count_of": count_of,
        "size": size,
        "rate": rate,
        "duration": duration,
        "time": time,
        "percent": percent,
        "release": release,
        "segment": segment,
        "member_parts": member_parts,
        "groupby_order": groupby_order,
        "printable": printable,
        "quantity": quantity,
    }
)
"""Filters by the name that templates use."""


TEMPLATES: Final = Path(__file__).parent / "templates"

NAVIGATION: Final[Mapping[str, str]] = MappingProxyType(
    {
        "/": "Overview",
        "/topics": "Topics",
        "/groups": "Groups",
        "/messages": "Messages",
        "/dead-letters": "Dead letters",
        "/brokers": "Brokers",
        "/access": "Access",
        "/jobs": "Jobs",
        "/balance": "Balance",
        "/audit": "Audit",
    }
)
"""Pages of the menu: path and name."""

REFRESH_S: Final = 10
"""Seconds after which an open page asks for its newest numbers."""

REFRESH_HEADER: Final = "x-refresh"
"""Header of a request that a page makes on its own."""


@cache
def templates() -> Environment:
    """The templates, which escape all text and refuse facts that are missing."""
    environment = Environment(
        loader=FileSystemLoader(TEMPLATES),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters.update(FILTERS)
    return environment


def wants_json(request: Request) -> bool:
    """Whether the request asks for JSON and not for a page."""
    accepted = request.headers.get("accept", "")
    return "application/json" in accepted and "text/html" not in accepted


def page(
    request: Request,
    template: str,
    *,
    status: int = 200,
    only_html: Mapping[str, object] | None = None,
    **facts: object,
) -> Response:
    """The page of a template, or its facts as JSON.

    `only_html` are facts that JSON leaves out, for example forms' choices.
    """
    if wants_json(request):
        plain = msgspec.to_builtins(facts, str_keys=True, enc_hook=_plain)
        body = msgspec.json.encode(without_surrogates(plain))
        return Response(body, status, media_type="application/json")
    shared = {**_shared_facts(request), "refresh_s": _refresh_s(request, status)}
    html = templates().get_template(template).render({**shared, **(only_html or {}), **facts})
    # A name may hold half of a surrogate pair, which UTF-8 has no bytes for.
    return HTMLResponse(html.encode("utf-8", "replace"), status)


VISITOR_ERRORS: Final = (UsageError, ConfigError, MessageIllegal, FieldError)
"""Errors that the visitor's input has made, not the cluster."""


def status_of(error: Exception) -> int:
    """Status of a response that shows an error of the visitor, of his rights or of the cluster."""
    if isinstance(error, NotFound):
        return 404
    if isinstance(error, CallRefused) and error.code == ResponseCode.NO_PERMISSION:
        return 403
    return 400 if isinstance(error, VISITOR_ERRORS) else 502


def confirmation(
    request: Request,
    title: str,
    lines: Sequence[str],
    *,
    action: str,
    verb: str,
    fields: Sequence[tuple[str, str]] = (),
    typed_name: str | None = None,
    **facts: object,
) -> Response:
    """The preview of a change, with a form that makes it by POST to the path `action`.

    `typed_name` is what has to be typed first; None: nothing.
    """
    only_html: dict[str, object] = {"back": action.rpartition("/")[0], "action": action}
    only_html |= {"fields": fields, "verb": verb, "typed_name": typed_name}
    shown: dict[str, Any] = {"title": title, "lines": lines, **facts}
    return page(request, "confirm.html", only_html=only_html, **shown)


def _shared_facts(request: Request) -> dict[str, Any]:
    dashboard, visitor = dashboard_of(request), visitor_of(request)
    first = "/" + request.url.path.split("/")[1]
    return {
        "path": request.url.path,
        "section": first,
        "navigation": NAVIGATION,
        "user": visitor.user,
        "csrf": dashboard.sessions.csrf_token(visitor.token),
        "has_login": dashboard.settings.login,
        "read_only": dashboard.settings.read_only,
        "may": partial(_may, dashboard, visitor.user),
        "notice": None
        if REFRESH_HEADER in request.headers  # it is for the page that the visitor asks for
        else dashboard.sessions.take_notice(visitor.token),
        "now_ms": dashboard.clock.now_ms(),
    }


def _refresh_s(request: Request, status: int) -> int:
    """Seconds between refreshes of a page; 0 for never, as for an error of the visitor."""
    return REFRESH_S if request.method == "GET" and not 400 <= status < 500 else 0


def _may(
    dashboard: Dashboard, user: str | None, action: str, kind: str, name: str | None = None
) -> bool:
    """Whether a page shows the form of a change: not in a read-only dashboard, by the rights."""
    sample = dashboard.sampler.latest
    tables = None if sample is None else sample.access
    return not dashboard.settings.read_only and may_change(tables, user, action, kind, name)


def _plain(value: object) -> object:
    """A value that msgspec does not know, as a text or a list."""
    return list(value) if isinstance(value, set | frozenset | tuple) else str(value)
