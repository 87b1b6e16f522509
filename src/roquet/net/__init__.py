"""Bytes to sockets: drives wire.Connection, and holds the only real clock."""
