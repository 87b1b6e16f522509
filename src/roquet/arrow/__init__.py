"""Stored bytes to Arrow columns and back: numpy and pyarrow, no message objects, no Spark."""
