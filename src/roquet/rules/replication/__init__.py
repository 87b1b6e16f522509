"""Replication: what is confirmed, who is in sync, and where a replica's log goes on."""
