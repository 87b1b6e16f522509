"""OpenTelemetry: an instrumentor, by which `opentelemetry-instrument` turns on the clients' spans.

The package's entry point `opentelemetry_instrumentor` names it.
"""

from collections.abc import Collection
from typing import Any

from roquet.client.connection.session import Session
from roquet.integrations import installed_by

with installed_by("pip install 'roquet[tracing]' opentelemetry-distro"):
    from opentelemetry.instrumentation.instrumentor import BaseInstrumentor  # type: ignore[attr-defined]


class RocketMQInstrumentor(BaseInstrumentor):  # type: ignore[misc]
    """Makes spans of all clients that are made later and whose settings do not say `tracing`."""

    def instrumentation_dependencies(self) -> Collection[str]:
        """The package whose clients are instrumented."""
        return ("roquet >= 0.1",)

    def _instrument(self, **options: Any) -> None:
        Session.default_tracing = options.get("tracer_provider") or True

    def _uninstrument(self, **_options: Any) -> None:
        Session.default_tracing = False
