"""Replication: streams between a master and its replicas, and the small files of both."""
