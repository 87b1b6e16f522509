"""Consume queues: from a queue offset to the position of a record, with checks and repair."""
