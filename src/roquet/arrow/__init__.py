"""Stored bytes to columns: numpy and pyarrow, no message objects, no Spark."""
