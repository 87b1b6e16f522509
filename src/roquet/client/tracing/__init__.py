"""Tracing: records of what became of each message, written into the trace topic.

sends, handlers ──▶ tracer ──▶ trace_messages: records within the size limits ──▶ trace topic
"""
