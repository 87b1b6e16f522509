"""OpenTelemetry: an instrumentor that `opentelemetry-instrument` finds, for spans of all clients.

opentelemetry-instrument python app.py
"""

from collections.abc import Collection
from typing import Any

from opentelemetry.instrumentation.instrumentor import (
    BaseInstrumentor,  # type: ignore[attr-defined]  # the module has no types at all
)

from roquet.client.connection.session import Session


class RocketMQInstrumentor(BaseInstrumentor):  # type: ignore[misc]
    """Makes spans of all clients that are made later and whose settings do not say `tracing`."""

    def instrumentation_dependencies(self) -> Collection[str]:
        """The package whose clients are instrumented."""
        return ("roquet >= 0.1",)

    def _instrument(self, **options: Any) -> None:
        Session.default_tracing = options.get("tracer_provider") or True

    def _uninstrument(self, **_options: Any) -> None:
        Session.default_tracing = False
