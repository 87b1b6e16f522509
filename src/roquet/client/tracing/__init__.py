"""Tracing: records of what became of each message, written into the trace topic."""
