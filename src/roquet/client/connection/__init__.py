"""Connections: a client's identity, routes, heartbeats, security and background tasks."""
