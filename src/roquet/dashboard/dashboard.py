"""Dashboard: everything that its pages share."""

import msgspec

from roquet.admin.client import AdminClient
from roquet.client.config import ClientConfig
from roquet.dashboard.config import DashboardConfig
from roquet.dashboard.job_notes import JobSource
from roquet.dashboard.resizes import Resizes
from roquet.dashboard.sampling.sampler import Sampler
from roquet.dashboard.security.attempts import LoginAttempts
from roquet.dashboard.security.audit_log import AuditLog
from roquet.dashboard.security.sessions import Sessions
from roquet.dashboard.stream_slots import StreamSlots
from roquet.net.clock import Clock


class Dashboard(msgspec.Struct, frozen=True, kw_only=True):
    """Parts of a dashboard: its own connection, its samples, its sessions, its audit log."""

    settings: DashboardConfig
    clock: Clock
    client: ClientConfig
    """Settings of clients that ask as the dashboard's own user."""
    admin: AdminClient
    """The dashboard's own connection: it samples, and answers where nobody logs in."""
    sampler: Sampler
    sessions: Sessions
    attempts: LoginAttempts
    audit: AuditLog
    resizes: Resizes
    streams: StreamSlots = msgspec.field(default_factory=StreamSlots)
    job_source: JobSource | None = None
    """Reads the notes of archives' tables; None where the packages for that are not installed."""
