"""Messages of RocketMQ 5's gRPC protocol, their descriptors and types made by protoc."""
