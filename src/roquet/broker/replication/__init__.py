"""Replication: a broker's role in its group, the stream of the log, and copies of the tables."""
