"""Filtering by SQL92 expressions: compiled once, searched for in blocks of records."""
