"""Application: the dashboard's pages behind its checks."""

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from functools import wraps
from pathlib import Path
from typing import Final

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Mount, Route
from starlette.staticfiles import StaticFiles

from roquet.dashboard.changes import ChangeForbidden
from roquet.dashboard.dashboard import Dashboard
from roquet.dashboard.pages import (
    access,
    audit,
    balance,
    brokers,
    dead_letters,
    groups,
    jobs,
    login,
    message_send,
    message_tail,
    messages,
    overview,
    topics,
)
from roquet.dashboard.rendering import page, status_of
from roquet.dashboard.request_guard import RequestGuard
from roquet.log_records import logger
from roquet.model.errors import RoquetError

log = logger(__name__)

STATIC_FILES: Final = Path(__file__).parent / "static"

ERROR_TITLES: Final = {403: "Not allowed", 404: "Not found"}
"""Titles of pages that say in plain words why there is nothing to see."""

PAGES: Final = (
    overview,
    topics,
    groups,
    messages,
    message_tail,
    message_send,
    dead_letters,
    brokers,
    access,
    jobs,
    balance,
    audit,
    login,
)
"""Modules of pages; each has its ROUTES."""


def application(dashboard: Dashboard) -> Starlette:
    """The pages of a dashboard, as an ASGI application."""
    # The response says what is wrong with a form; a line for each would be a stranger's to write.
    logging.getLogger("python_multipart").setLevel(logging.CRITICAL)
    deadline_ms = dashboard.settings.deadline_ms
    routes: list[BaseRoute] = [
        _with_deadline(route, deadline_ms) for module in PAGES for route in module.ROUTES
    ]
    routes.append(Mount("/static", StaticFiles(directory=STATIC_FILES), name="static"))
    app = Starlette(
        routes=routes,
        middleware=[Middleware(RequestGuard, dashboard)],
        exception_handlers={
            HTTPException: _show_http_error,
            RoquetError: _show_error,
            TimeoutError: _show_timeout,
        },
        lifespan=_lifespan,
    )
    app.state.dashboard = dashboard
    return app


@asynccontextmanager
async def _lifespan(app: Starlette) -> AsyncIterator[None]:
    dashboard: Dashboard = app.state.dashboard
    yield
    await dashboard.sessions.close_all()


def _with_deadline(route: Route, deadline_ms: int) -> Route:
    """A route whose handler has to answer in time; a stream may go on after that."""
    handler: Callable[[Request], Awaitable[Response]] = route.endpoint

    @wraps(handler)
    async def limited(request: Request) -> Response:
        try:
            async with asyncio.timeout(deadline_ms / 1000):
                return await handler(request)
        except ClientDisconnect:  # in the middle of a form; nobody reads the response
            return Response(status_code=400)
        except (RoquetError, HTTPException, TimeoutError):
            raise
        except Exception as error:  # here, since Starlette's own page of it has no headers of ours
            return _show_defect(request, error)

    methods = sorted((route.methods or {"GET"}) - {"HEAD"})
    return Route(route.path, limited, methods=methods, name=handler.__name__)


async def _show_http_error(request: Request, error: Exception) -> Response:
    """The page of an address that does not exist, or of a method that it does not take."""
    assert isinstance(error, HTTPException)
    text = "there is no such page" if error.status_code == 404 else error.detail
    return _error_page(request, error.status_code, text)


async def _show_error(request: Request, error: Exception) -> Response:
    """The page of an error that the visitor or the cluster has made."""
    status = 403 if isinstance(error, ChangeForbidden) else status_of(error)
    return _error_page(request, status, str(error))


async def _show_timeout(request: Request, _error: Exception) -> Response:
    text = "the cluster did not answer in time; a change may or may not have been made"
    return _error_page(request, 504, text)


def _show_defect(request: Request, error: Exception) -> Response:
    log.error("%s %s failed", request.method, request.url.path, exc_info=error)
    return _error_page(request, 500, "an error of the dashboard; see its log")


def _error_page(request: Request, status: int, text: str) -> Response:
    """The page of an error; in a part of a page that htmx asked for, it has the place of it."""
    part = request.headers.get("hx-target", "").rpartition("#")[2]
    place = part if part.isidentifier() else ""
    title = ERROR_TITLES.get(status, "That did not work")
    only_html = {"title": title, "is_plain": status in ERROR_TITLES, "part": place}
    return page(request, "error.html", status=status, error=text, only_html=only_html)
