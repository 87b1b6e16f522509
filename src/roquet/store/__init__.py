"""Bytes to disk: synchronous, one writer, many readers; told the time, never asking."""
