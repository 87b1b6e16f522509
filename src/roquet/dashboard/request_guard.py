"""RequestGuard: checks each request before a page sees it, and adds headers to each response."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final
from urllib.parse import quote

from starlette.datastructures import Headers, MutableHeaders
from starlette.exceptions import HTTPException
from starlette.responses import PlainTextResponse, RedirectResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from roquet.dashboard.dashboard import Dashboard
from roquet.dashboard.request_context import VISITOR
from roquet.dashboard.security.sessions import Visitor, new_token

BODY_MAX: Final = 6 * 1024 * 1024
"""Bytes of a form in parts (multipart/form-data) with the longest message."""

FORM_MAX: Final = 64 * 1024
"""Bytes of any other request: forms are read on the event loop, and 5 MB of escaped characters take
more than a second."""

FIELDS_MAX: Final = 1_000
"""Fields of a form. Empty ones, between two `&`, cost the most for their bytes."""

LONG_PATHS: Final = frozenset({"/messages/new"})
"""Paths that take a form with a message."""

URL_ENCODED: Final = "application/x-www-form-urlencoded"
IN_PARTS: Final = "multipart/form-data"

TOKEN_MAX: Final = 100
"""Characters of a cookie that are looked at."""

SAFE_METHODS: Final = frozenset({"GET", "HEAD"})
STATIC: Final = "/static/"
OPEN_PATHS: Final = ("/login", STATIC)
"""Paths that need no login."""

HEADERS: Final[Mapping[str, str]] = MappingProxyType(
    {
        "content-security-policy": (
            "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; "
            "connect-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
        ),
        "x-content-type-options": "nosniff",
        "referrer-policy": "same-origin",  # with no-referrer forms have `Origin: null`
        "cross-origin-opener-policy": "same-origin",
        "cross-origin-resource-policy": "same-origin",
    }
)
"""Headers of every response: no script, style or form that is not ours, and no frame."""


class RequestGuard:
    """Middleware: host, size, origin, cookie and login of each request."""

    def __init__(self, app: ASGIApp, dashboard: Dashboard) -> None:
        self._app = app
        self._dashboard = dashboard
        self._is_secure = dashboard.settings.is_secure
        self._hosts = dashboard.settings.allowed_hosts

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request, or refuse it."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        headers = Headers(scope=scope)
        cookie = _token(headers, cookie_name(is_secure=self._is_secure))
        visitor = self._visitor(cookie)
        scope[VISITOR] = visitor
        is_new = visitor.token != cookie
        path = scope["path"]

        async def send_guarded(message: Message) -> None:
            if message["type"] == "http.response.start":
                self._add_headers(MutableHeaders(scope=message), path, visitor, is_new=is_new)
            await send(message)

        received = fields = 0
        kind = headers.get("content-type", "").partition(";")[0].strip().lower()
        size_max = BODY_MAX if path in LONG_PATHS and kind == IN_PARTS else FORM_MAX

        async def receive_limited() -> Message:
            nonlocal received, fields
            message = await receive()
            body = message.get("body", b"")
            received += len(body)
            fields += body.count(b"&") if kind == URL_ENCODED else 0
            if received > size_max:
                raise HTTPException(413, _too_long(size_max))
            if fields > FIELDS_MAX:
                raise HTTPException(413, f"a form has {FIELDS_MAX:,} fields at most")
            return message

        refusal = self._refusal(scope, headers, visitor, size_max)
        if refusal is not None:
            await refusal(scope, receive, send_guarded)
            return
        await self._app(scope, receive_limited, send_guarded)

    def _visitor(self, cookie: str) -> Visitor:
        """The visitor of a cookie; somebody who has not logged in gets the dashboard's rights."""
        dashboard = self._dashboard
        known = dashboard.sessions.find(cookie, dashboard.clock.monotonic_ms())
        return known or Visitor(
            token=cookie or new_token(), user=None, client=dashboard.client, admin=dashboard.admin
        )

    def _refusal(
        self, scope: Scope, headers: Headers, visitor: Visitor, size_max: int
    ) -> Response | None:
        """The response to a request that no page may see; None lets it through."""
        host = headers.get("host", "")
        if _host_name(host) not in self._hosts:
            return PlainTextResponse(
                "this dashboard has another host name; --public-name allows further ones", 421
            )
        length = headers.get("content-length", "0")
        if not length.isdecimal() or int(length[:12]) > size_max:
            return PlainTextResponse(_too_long(size_max), 413)
        if scope["method"] not in SAFE_METHODS and not _is_same_origin(headers, host):
            return PlainTextResponse("this request comes from another site", 403)
        if self._dashboard.settings.login and visitor.user is None:
            return _login_needed(scope, headers)
        return None

    def _add_headers(
        self, headers: MutableHeaders, path: str, visitor: Visitor, *, is_new: bool
    ) -> None:
        for name, value in HEADERS.items():
            headers.setdefault(name, value)
        headers.setdefault("cache-control", "no-cache" if path.startswith(STATIC) else "no-store")
        if is_new and "set-cookie" not in headers and not path.startswith(STATIC):
            cookie = session_cookie(visitor.token, is_secure=self._is_secure, lifetime_s=None)
            headers.append("set-cookie", cookie)


def cookie_name(*, is_secure: bool) -> str:
    """Name of the cookie; browsers let no other host set one that begins with `__Host-`."""
    return "__Host-roquet" if is_secure else "roquet"


def session_cookie(token: str, *, is_secure: bool, lifetime_s: int | None) -> str:
    """The Set-Cookie header of a visitor's token; None lasts as long as the browser."""
    parts = [f"{cookie_name(is_secure=is_secure)}={token}", "Path=/", "HttpOnly", "SameSite=Lax"]
    if is_secure:
        parts.append("Secure")
    if lifetime_s is not None:
        parts.append(f"Max-Age={lifetime_s}")
    return "; ".join(parts)


def local_path(text: str) -> str:
    """A path of this dashboard to go on to; `/` for anything else."""
    is_local = text.startswith("/") and not text.startswith("//") and text.isprintable()
    return text if is_local and "\\" not in text else "/"


def _token(headers: Headers, name: str) -> str:
    """The token in a request's cookie; empty without one.

    Cookies of other servers on the same host may have any form. `http.cookies` would give up at
    the first odd one, and in some versions takes seconds for quotes with many backslashes.
    """
    token = ""
    for cookie in headers.get("cookie", "").split(";"):
        found, _, value = cookie.partition("=")
        if found.strip() == name:
            token = value.strip()
    is_plain = token.isascii() and token.replace("-", "").replace("_", "").isalnum()
    return token if is_plain and len(token) <= TOKEN_MAX else ""


def _too_long(size_max: int) -> str:
    advice = f"; {', '.join(LONG_PATHS)} takes {BODY_MAX:,} as {IN_PARTS}"
    return f"a request has {size_max:,} bytes at most{advice if size_max < BODY_MAX else ''}"


def _host_name(host: str) -> str:
    """The name in a Host header, without its port, in lower case."""
    name, colon, port = host.rpartition(":")
    return (name if colon and port.isdecimal() else host).lower()


def _is_same_origin(headers: Headers, host: str) -> bool:
    """Whether a browser says that the request comes from a page of ours.

    What is no browser says nothing; the CSRF token holds it off.
    """
    site = headers.get("sec-fetch-site")
    if site is not None and site not in {"same-origin", "none"}:
        return False
    origin = headers.get("origin")
    return origin is None or origin.partition("://")[2] == host


def _login_needed(scope: Scope, headers: Headers) -> Response | None:
    path = scope["path"]
    if path == OPEN_PATHS[0] or path.startswith(STATIC):
        return None
    if scope["method"] not in SAFE_METHODS or "text/html" not in headers.get("accept", ""):
        return PlainTextResponse("log in first", 401)
    query = scope["query_string"].decode("latin-1")
    return RedirectResponse(f"/login?next={quote(path + ('?' + query if query else ''))}", 303)
