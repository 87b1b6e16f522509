"""Stream: the log from a master to its replicas, at both ends, with and without epochs."""
