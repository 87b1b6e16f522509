"""The proxy: RocketMQ 5's gRPC protocol in front of a cluster, for its official clients."""
