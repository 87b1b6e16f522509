"""Columns of tables: those of messages, of bodies and of partitions, and their statistics."""
