"""The RocketMQ protocol: bytes to values and back, without a socket or a file."""
