"""Producer of FastStream: encodes messages and sends them by the client's producer."""

from collections.abc import Sequence

from fast_depends.library.serializer import SerializerProto
from faststream._internal.endpoint.publisher.fake import FakePublisher
from faststream._internal.endpoint.utils import ParserComposition
from faststream._internal.parser import BatchCodecProto, CodecProto, DefaultCodec
from faststream._internal.producer import ProducerProto
from faststream._internal.types import CustomCallable
from faststream.exceptions import IncorrectState
from faststream.response.response import PublishCommand

from roquet.client import CallTimeout, Message, Producer, ReceivedMessage, ReplyMessage, SendReceipt
from roquet.integrations.faststream.messages import (
    RocketPublishCommand,
    decode_single,
    parse_message,
)


class RocketProducer(ProducerProto[RocketPublishCommand]):
    """Publishes commands while the broker is connected."""

    client: Producer | None = None
    serializer: SerializerProto | None = None

    def __init__(
        self,
        parser: CustomCallable | None = None,
        decoder: CustomCallable | None = None,
        codec: CodecProto | None = None,
    ) -> None:
        self._parser = ParserComposition(parser, parse_message)
        self._decoder = ParserComposition(decoder, decode_single)
        self.codec = codec or DefaultCodec()

    async def encode(self, command: RocketPublishCommand) -> Message:
        """Make the message of a command."""
        return command.message(*await self.codec.encode(command.body, self.serializer))

    async def encode_batch(self, command: RocketPublishCommand) -> Sequence[Message]:
        """Make the messages of a command."""
        bodies = command.batch_bodies
        if isinstance(self.codec, BatchCodecProto):
            encoded = await self.codec.encode_batch(bodies, self.serializer)
        else:
            encoded = [await self.codec.encode(body, self.serializer) for body in bodies]
        return [command.message(body, content_type) for body, content_type in encoded]

    @property
    def _connected(self) -> Producer:
        if self.client is None:
            raise IncorrectState("the broker is not connected: start it, or await broker.connect()")
        return self.client

    async def publish(self, cmd: RocketPublishCommand) -> SendReceipt | bool:
        """Send a message, or reply to a request: False if nobody waits for the reply any more."""
        message = await self.encode(cmd)
        if cmd.request is not None:
            return await cmd.request.reply(message.body, properties=message.properties)
        return await self._connected.send(message)

    async def request(self, cmd: RocketPublishCommand) -> ReplyMessage:
        """Send a message and return its reply. Raises TimeoutError when none comes in time."""
        message, timeout_ms = await self.encode(cmd), max(int(cmd.timeout_s * 1000), 1)
        try:
            return await self._connected.request(message, timeout_ms=timeout_ms)
        except CallTimeout as error:
            raise TimeoutError(str(error)) from error

    async def publish_batch(self, cmd: RocketPublishCommand) -> Sequence[SendReceipt]:
        """Send messages in batches that form on the way; return their receipts."""
        return await self._connected.send_many(await self.encode_batch(cmd))


class ReplyPublisher(FakePublisher):
    """Publishes a handler's result as a reply: to the producer that waits, or to a topic."""

    def __init__(
        self, producer: RocketProducer, topic: str, request: ReceivedMessage | None
    ) -> None:
        super().__init__(producer=producer)
        self._topic = topic
        self._request = request

    def patch_command(self, cmd: PublishCommand) -> RocketPublishCommand:
        """Make the command of the reply."""
        command = RocketPublishCommand.from_cmd(super().patch_command(cmd))
        command.destination, command.request = self._topic, self._request
        return command
