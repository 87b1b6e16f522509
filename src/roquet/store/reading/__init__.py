"""Reads: records found by offset, by time, by position and by key.

reader             the reads of the store
entry_scan         entries of a queue that match a filter, some at a time; ranges of the log
"""
