"""Audit: who changed what, when and from where, and how it ended."""

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from roquet.dashboard.form_fields import text_of
from roquet.dashboard.rendering import page
from roquet.dashboard.request_context import dashboard_of
from roquet.dashboard.security.audit_log import AuditEntry


async def overview(request: Request) -> Response:
    """The newest changes, or those that contain a text."""
    part = text_of(request.query_params, "part") or ""
    dashboard = dashboard_of(request)
    shown = [entry for entry in dashboard.audit.entries if part.lower() in _searched(entry)]
    return page(
        request,
        "audit.html",
        only_html={"part": part, "file": dashboard.settings.audit_file},
        entries=shown,
    )


def _searched(entry: AuditEntry) -> str:
    """All texts of an entry, in lower case."""
    details = [f"{name}={value}" for name, value in entry.details.items()]
    texts = (entry.action, entry.user or "", entry.address, entry.outcome.value, entry.text)
    return " ".join((*texts, *details)).lower()


ROUTES = [Route("/audit", overview)]
