"""Server: a dashboard that listens, from its settings to its end."""

import asyncio
import socket
import ssl
from collections.abc import AsyncIterator, Coroutine, Iterator
from contextlib import AsyncExitStack, asynccontextmanager, closing, contextmanager
from typing import Any, Final

import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol, RequestResponseCycle

from roquet.admin.client import AdminClient
from roquet.client.config import ClientConfig
from roquet.dashboard.app import application
from roquet.dashboard.config import DashboardConfig
from roquet.dashboard.dashboard import Dashboard, Resizes
from roquet.dashboard.sampling.jobs import JobSampler, JobSource
from roquet.dashboard.sampling.sampler import Sampler
from roquet.dashboard.security.audit_log import AuditLog
from roquet.dashboard.security.logins import ADDRESS_MAX, TOTAL_MAX, LoginAttempts
from roquet.dashboard.security.sessions import Sessions
from roquet.model.errors import ConfigError
from roquet.net.address import address_error
from roquet.net.clock import Clock, every
from roquet.net.reloaded_tls import RELOAD_MS, ReloadedTls

REQUEST_S: Final = 10.0
"""Time in which the headers of a request have to come, also those of the next one."""

UNREAD_S: Final = 30.0
"""Time in which a browser has to read what waits for it: 64 KB and what the system holds."""


class BrowserConnection(H11Protocol):
    """One connection; it is closed when its browser is too slow.

    Connections count to the server's limit: a stranger who opens many and sends no request, or does
    not read the responses, would keep everybody else out.
    """

    request_s = REQUEST_S
    unread_s = UNREAD_S

    def __init__(self, *settings: Any, **more: Any) -> None:
        super().__init__(*settings, **more)
        self._awaited: asyncio.TimerHandle | None = None
        """Set while no request is being served."""
        self._unread: asyncio.TimerHandle | None = None
        """Set while the browser does not read."""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Wait for the first request."""
        super().connection_made(transport)
        self._watch_request()

    def data_received(self, data: bytes) -> None:
        """Take bytes of a request."""
        super().data_received(data)
        self._watch_request()

    def on_response_complete(self) -> None:
        """Wait for the next request."""
        super().on_response_complete()
        self._watch_request()

    def pause_writing(self) -> None:
        """Wait for a browser that does not read."""
        super().pause_writing()
        self._unread = self.loop.call_later(self.unread_s, self.transport.abort)

    def resume_writing(self) -> None:
        """Go on: the browser reads."""
        super().resume_writing()
        _cancel(self._unread)

    def connection_lost(self, exc: Exception | None) -> None:
        """Wait for nothing any more."""
        super().connection_lost(exc)
        _cancel(self._awaited)
        _cancel(self._unread)

    def _watch_request(self) -> None:
        cycle: RequestResponseCycle | None = self.cycle  # None before the first request
        if cycle is not None and not cycle.response_complete:
            _cancel(self._awaited)
            self._awaited = None
        elif self._awaited is None and not self.transport.is_closing():
            self._awaited = self.loop.call_later(self.request_s, self.transport.abort)


def _cancel(timer: asyncio.TimerHandle | None) -> None:
    if timer is not None:
        timer.cancel()


CONNECTIONS_MAX: Final = 1_000
"""Connections of browsers at a time, streams among them."""

SHUTDOWN_S: Final = 2
"""Time that requests have to end when the dashboard stops."""


class _Server(uvicorn.Server):
    """A server that leaves signals to the command."""

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Do nothing: the command has its own handlers."""
        yield


@asynccontextmanager
async def open_dashboard(
    settings: DashboardConfig,
    client: ClientConfig | None = None,
    job_source: JobSource | None = None,
) -> AsyncIterator[Dashboard]:
    """Connect to a cluster, and sample it until the end.

    `client` are the settings of the dashboard's own connections; None: those of the environment.
    `job_source` reads the notes of archives' tables.
    """
    client = client or ClientConfig()
    async with AsyncExitStack() as stack:
        admin = await stack.enter_async_context(AdminClient(settings.name_servers, client))
        audit = stack.enter_context(closing(AuditLog(settings.audit_file)))
        resizes = Resizes()
        stack.push_async_callback(resizes.close)
        sampler = Sampler(admin, period_ms=settings.sample_ms, with_access=settings.login)
        await stack.enter_async_context(_running(sampler.run()))
        jobs = None
        if job_source is not None and settings.tables:
            jobs = JobSampler(job_source, settings.tables, client.clock)
            await stack.enter_async_context(_running(jobs.run()))
        yield Dashboard(
            settings=settings,
            clock=client.clock,
            client=client,
            admin=admin,
            sampler=sampler,
            sessions=Sessions(
                lambda config: AdminClient(settings.name_servers, config),
                lifetime_ms=settings.session_ms,
            ),
            attempts=LoginAttempts(TOTAL_MAX if settings.is_behind_tls else ADDRESS_MAX),
            audit=audit,
            resizes=resizes,
            job_source=job_source,
            jobs=jobs,
        )


@asynccontextmanager
async def _running(work: Coroutine[Any, Any, None]) -> AsyncIterator[None]:
    """Run a coroutine in the background until the block ends."""
    task = asyncio.create_task(work)
    try:
        yield
    finally:
        task.cancel()
        await asyncio.wait([task])


@asynccontextmanager
async def serve_dashboard(
    settings: DashboardConfig, job_source: JobSource | None = None
) -> AsyncIterator[str]:
    """Serve a dashboard; yields its URL. Raises ConfigError when the port is taken."""
    async with (
        open_dashboard(settings, job_source=job_source) as dashboard,
        _tls_context(settings, dashboard.clock) as context,
    ):
        server = _server(dashboard, context)
        with closing(_listener(settings)) as listener:
            serving = asyncio.create_task(server.serve([listener]))
            try:
                scheme = "https" if context else "http"
                host = f"[{settings.host}]" if ":" in settings.host else settings.host
                yield f"{scheme}://{host}:{listener.getsockname()[1]}/"
            finally:
                server.should_exit = True
                await serving


@asynccontextmanager
async def _tls_context(
    settings: DashboardConfig, clock: Clock
) -> AsyncIterator[ssl.SSLContext | None]:
    """The context of the server, whose handshakes take over changed files; None without TLS."""
    if settings.tls is None:
        yield None
        return
    tls = ReloadedTls(settings.tls)
    context = settings.tls.context()

    def take_newest(connection: ssl.SSLObject, _name: str, _context: ssl.SSLContext) -> None:
        connection.context = tls.context

    # A listening socket keeps its context for ever; this one hands each handshake on.
    context.sni_callback = take_newest
    async with _running(every(RELOAD_MS, tls.reload, clock)):
        yield context


def _listener(settings: DashboardConfig) -> socket.socket:
    family = socket.AF_INET6 if ":" in settings.host else socket.AF_INET
    try:
        return socket.create_server((settings.host, settings.port), family=family)
    except OSError as error:
        raise ConfigError(
            f"--port {settings.port}: {address_error(error)}; another one, or 0 for any"
        ) from None


def _server(dashboard: Dashboard, context: ssl.SSLContext | None) -> _Server:
    settings = dashboard.settings
    config = uvicorn.Config(
        application(dashboard),
        host=settings.host,
        port=settings.port,
        log_config=None,
        access_log=False,
        server_header=False,
        proxy_headers=False,
        limit_concurrency=CONNECTIONS_MAX,
        timeout_graceful_shutdown=SHUTDOWN_S,
        http=BrowserConnection,
        ws="none",
    )
    config.load()
    config.ssl = context
    return _Server(config)
