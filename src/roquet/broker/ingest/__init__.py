"""Ingest: the way of a message into the store, from clients and from the broker's own services."""
