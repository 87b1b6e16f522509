"""Changes: POST requests that are checked, made and written to the audit log."""

import asyncio
from collections.abc import Awaitable, Callable
from functools import wraps
from typing import Final, TypeAlias

from starlette.datastructures import FormData
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from roquet.broker.settings.definitions import OWN_NAMES, SETTINGS
from roquet.broker.settings.value_formats import HIDDEN
from roquet.dashboard.request_context import address_of, dashboard_of, visitor_of
from roquet.dashboard.security.audit_log import AuditOutcome
from roquet.model.errors import CallError, RoquetError, UsageError

SECRET_PARTS: Final = ("password", "secret", "credential", "initauthenticationuser")
"""Parts of keys, in lower case: Apache's brokers report the values as they are."""


def shown_value(key: str, value: str) -> str:
    """A setting's value as pages and the audit log show it; a secret is `HIDDEN`."""
    own = SETTINGS.get(OWN_NAMES.get(key, key))
    is_secret = any(part in key.lower() for part in SECRET_PARTS)
    return HIDDEN if value and (is_secret or (own is not None and own.is_secret)) else value


CSRF_FIELD: Final = "csrf"
CSRF_HEADER: Final = "x-csrf-token"

FIELD_MAX: Final = 5 * 1024 * 1024
"""Bytes of one field: more than the longest message that brokers take by default."""

FIELDS_MAX: Final = 50
"""Different fields of a form: no page of ours has more."""

UNLOGGED: Final = frozenset({CSRF_FIELD, "password", "secret_key", "secret"})
"""Fields of forms that the audit log leaves out."""

ChangeHandler: TypeAlias = Callable[[Request, FormData], Awaitable[Response]]
PageHandler: TypeAlias = Callable[[Request], Awaitable[Response]]


class ChangeForbidden(RoquetError):
    """A change that the dashboard does not let this visitor make."""


def change(
    action: str, *, unlogged: frozenset[str] = frozenset()
) -> Callable[[ChangeHandler], PageHandler]:
    """Decorate the handler of a change: `action` names it in the audit log, as `topic.create`.

    The handler is called with the request and its form once the CSRF token was checked, unless the
    dashboard is read-only. `unlogged` are fields that the audit log leaves out, besides passwords.
    """

    def decorate(handler: ChangeHandler) -> PageHandler:
        @wraps(handler)
        async def checked(request: Request) -> Response:
            dashboard, visitor = dashboard_of(request), visitor_of(request)
            form = await request.form(max_files=0, max_part_size=FIELD_MAX)
            entry = dashboard.audit.begin(
                at_ms=dashboard.clock.now_ms(),
                user=visitor.user,
                address=address_of(request),
                action=action,
                details=_details(request, form, UNLOGGED | unlogged),
            )
            try:
                _check(request, form)
                response = await handler(request, form)
            except CallError as error:
                outcome = AuditOutcome.REFUSED if error.definite else AuditOutcome.UNKNOWN
                dashboard.audit.end(entry, outcome, str(error))
                raise
            except RoquetError as error:
                dashboard.audit.end(entry, AuditOutcome.REFUSED, str(error))
                raise
            except (Exception, asyncio.CancelledError) as error:
                dashboard.audit.end(entry, AuditOutcome.UNKNOWN, type(error).__name__)
                raise
            dashboard.audit.end(entry, AuditOutcome.DONE)
            return response

        checked.__dict__["is_change"] = True
        return checked

    return decorate


def _details(request: Request, form: FormData, unlogged: frozenset[str]) -> dict[str, str]:
    """Fields for the audit log, as handlers read them: no field hides one of the address.

    Raises UsageError for a form with more fields than are written.
    """
    if len(form) > FIELDS_MAX:
        raise UsageError(f"a form of {len(form)} fields is none of ours")
    texts = {n: ", ".join(str(value).strip() for value in form.getlist(n)) for n in form}
    if "value" in texts:
        texts["value"] = shown_value(texts.get("key", ""), texts["value"])
    fields = {**texts, **request.path_params}
    return {name: text for name, text in fields.items() if name not in unlogged}


def is_change(endpoint: object) -> bool:
    """Whether a handler was decorated by `change`."""
    return getattr(endpoint, "is_change", False) is True


def _check(request: Request, form: FormData) -> None:
    """Raise ChangeForbidden for a form that is not ours, and in a read-only dashboard."""
    check_csrf_token(request, form)
    if dashboard_of(request).settings.read_only:
        raise ChangeForbidden("this dashboard is read-only: it changes nothing")


def check_csrf_token(request: Request, form: FormData) -> None:
    """Raise ChangeForbidden unless a form or a header carries the visitor's CSRF token."""
    shown = form.get(CSRF_FIELD) or request.headers.get(CSRF_HEADER, "")
    if not dashboard_of(request).sessions.is_csrf_token(visitor_of(request).token, str(shown)):
        raise ChangeForbidden("the form is too old: load the page again, and repeat the change")


def form_text(form: FormData, name: str, default: str | None = None) -> str:
    """The text of a form's field, without U+0020 around it: other blanks may be part of a key.

    An empty or missing one is the default. Raises UsageError when there is none.
    """
    value = form.get(name)
    text = value.strip(" ") if isinstance(value, str) else ""
    if not text and default is None:
        raise UsageError(f"{name.replace('_', ' ')} is missing")
    return text or default or ""


def form_number(form: FormData, name: str, default: int | None = None) -> int:
    """The whole number in a form's field. Raises UsageError for another text."""
    text = form_text(form, name, None if default is None else str(default))
    try:
        return int(text[:20])
    except ValueError:
        raise UsageError(f"{name.replace('_', ' ')} {text!r} is not a whole number") from None


def done(request: Request, path: str, text: str) -> Response:
    """Send the browser to a page that says `text` once."""
    dashboard_of(request).sessions.notify(visitor_of(request).token, text)
    return RedirectResponse(path, 303)
