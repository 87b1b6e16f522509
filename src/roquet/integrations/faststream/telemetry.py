"""Telemetry of FastStream: OpenTelemetry's spans and metrics of publishes and handlers."""

from typing import Any

from faststream.message import StreamMessage

from roquet.integrations import installed_by
from roquet.integrations.faststream.messages import RocketPublishCommand

with installed_by("pip install 'roquet[faststream,tracing]' opentelemetry-sdk"):
    from faststream.opentelemetry import TelemetryMiddleware


class RocketTelemetryMiddleware(TelemetryMiddleware[RocketPublishCommand]):
    """Makes spans, which headers carry on, and metrics; options are those of FastStream's own."""

    messaging_system = "rocketmq"

    def __init__(self, **options: Any) -> None:
        super().__init__(settings_provider_factory=lambda _: self, **options)

    def get_consume_destination_name(self, msg: StreamMessage[Any]) -> str:
        """The topic; of a batch that of its first message."""
        raw = msg.raw_message[0] if msg.batch_headers else msg.raw_message
        return str(raw.topic)

    def get_consume_attrs_from_message(self, msg: StreamMessage[Any]) -> dict[str, Any]:
        """Attributes of a handler's span; those of a batch have the id of its first message."""
        attributes = {"messaging.message.id": msg.message_id, "messaging.system": "rocketmq"}
        return attributes | {"messaging.batch.message_count": len(msg.batch_headers) or 1}

    def get_publish_destination_name(self, cmd: RocketPublishCommand) -> str:
        """The topic."""
        return cmd.destination

    def get_publish_attrs_from_cmd(self, cmd: RocketPublishCommand) -> dict[str, Any]:
        """Attributes of a publish's spans."""
        return {"messaging.destination.name": cmd.destination, "messaging.system": "rocketmq"}
