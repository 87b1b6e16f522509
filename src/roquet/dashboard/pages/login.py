"""Login: the form, its check by the cluster, and the way out."""

import asyncio
from typing import Final

from msgspec.structs import replace
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import Route

from roquet.dashboard.changes import check_csrf_token, form_text
from roquet.dashboard.rendering import page
from roquet.dashboard.request_context import address_of, dashboard_of, visitor_of
from roquet.dashboard.request_guard import local_path, session_cookie
from roquet.dashboard.security.audit_log import AuditOutcome
from roquet.dashboard.security.logins import check_password, wrong_password
from roquet.model.errors import RoquetError, UsageError

USER_MAX: Final = 255
"""Characters of a user's name: strangers write it into the audit log."""


async def show_login(request: Request) -> Response:
    """The form."""
    return page(request, "login.html", next=local_path(request.query_params.get("next", "/")))


async def log_in(request: Request) -> Response:
    """Check a user's password by a signed request, and begin a session with a new cookie."""
    dashboard = dashboard_of(request)
    if not dashboard.settings.login:
        raise UsageError("this dashboard knows no logins")
    form = await request.form(max_fields=10, max_files=0)
    check_csrf_token(request, form)
    now_ms = dashboard.clock.monotonic_ms()
    address, target = address_of(request), local_path(form_text(form, "next", "/"))
    user = form_text(form, "user", "")
    if len(user) > USER_MAX:
        raise UsageError(f"a user has {USER_MAX} characters at most")
    if wait_ms := dashboard.attempts.wait_ms(user, address, now_ms):
        text = f"too many failed logins: try again in {wait_ms // 1000 + 1} s"
        return page(request, "login.html", status=429, next=target, error=text)
    dashboard.attempts.begin(user, address, now_ms)
    entry = dashboard.audit.begin(
        at_ms=dashboard.clock.now_ms(), user=user, address=address, action="login", details={}
    )
    try:
        user, password = form_text(form, "user"), form_text(form, "password")
        client = replace(dashboard.client, access_key=user, secret_key=password)
        wrong = replace(client, secret_key=wrong_password())
        servers = dashboard.settings.name_servers
        await check_password(dashboard.admin, servers, user, wrong, client)
    except RoquetError as error:
        dashboard.audit.end(entry, AuditOutcome.REFUSED, str(error))
        return page(request, "login.html", status=403, next=target, error=str(error))
    except (Exception, asyncio.CancelledError) as error:
        dashboard.audit.end(entry, AuditOutcome.UNKNOWN, type(error).__name__)
        raise
    dashboard.attempts.succeed(user, address)
    dashboard.audit.end(entry, AuditOutcome.DONE)
    visitor = await dashboard.sessions.open(user, client, now_ms)
    settings = dashboard.settings
    cookie = session_cookie(
        visitor.token, is_secure=settings.is_secure, lifetime_s=settings.session_ms // 1000
    )
    return RedirectResponse(target, 303, headers={"set-cookie": cookie})


async def log_out(request: Request) -> Response:
    """End the session."""
    dashboard = dashboard_of(request)
    check_csrf_token(request, await request.form(max_fields=10, max_files=0))
    await dashboard.sessions.close(visitor_of(request).token)
    cookie = session_cookie("", is_secure=dashboard.settings.is_secure, lifetime_s=0)
    return RedirectResponse("/login", 303, headers={"set-cookie": cookie})


ROUTES = [
    Route("/login", show_login, methods=["GET"]),
    Route("/login", log_in, methods=["POST"]),
    Route("/logout", log_out, methods=["POST"]),
]
