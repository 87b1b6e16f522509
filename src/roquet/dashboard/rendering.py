"""Rendering: a page's facts as HTML, or as JSON for a program that asks for it."""

from collections.abc import Mapping
from functools import cache, partial
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final

import msgspec
from jinja2 import Environment, FileSystemLoader, StrictUndefined
from starlette.requests import Request
from starlette.responses import HTMLResponse, Response

from roquet.dashboard import text_filters
from roquet.dashboard.dashboard import Dashboard
from roquet.dashboard.request_context import dashboard_of, visitor_of
from roquet.dashboard.visitor_rights import may_change
from roquet.model.printable_text import without_surrogates

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
    environment.filters.update(text_filters.FILTERS)
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
    shared = _shared_facts(request)
    html = templates().get_template(template).render({**shared, **(only_html or {}), **facts})
    # A name may hold half of a surrogate pair, which UTF-8 has no bytes for.
    return HTMLResponse(html.encode("utf-8", "replace"), status)


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
        "notice": dashboard.sessions.take_notice(visitor.token),
        "now_ms": dashboard.clock.now_ms(),
    }


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
