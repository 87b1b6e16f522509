"""Tracing: records of what became of each message, written into the trace topic.

sends, handlers ──▶ tracer ──▶ trace_messages: records within the size limits ──▶ trace topic
"""

from typing import TYPE_CHECKING

from roquet.client.config import ClientConfig
from roquet.client.connection.session import Session

if TYPE_CHECKING:
    from roquet.client.tracing.tracer import Tracer


def open_tracer(session: Session, config: ClientConfig, group: str) -> "Tracer | None":
    """A client's tracer, if the settings ask for one."""
    if not config.trace:
        return None
    # Not at the top: most clients do without, and producers without the consumers' modules.
    from roquet.client.tracing.tracer import Tracer

    return Tracer(session, config, group)
