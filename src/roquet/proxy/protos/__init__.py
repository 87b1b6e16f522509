"""Messages of RocketMQ 5's gRPC protocol, generated from tools/protos by `make map`."""
