"""Reads: records found by offset, by time, by position and by key."""
