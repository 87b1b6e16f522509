"""Bytes to values and back, without a socket or a file."""
