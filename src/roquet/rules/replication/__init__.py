"""Replication: what is confirmed, who is in sync, where a log goes on, which broker is read."""
