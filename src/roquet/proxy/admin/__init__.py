"""The Admin service: what operators ask of a cluster by gRPC, at a port of its own."""
