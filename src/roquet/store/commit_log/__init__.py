"""The commit log: every message of every topic, appended in order of arrival.

log                append, read, walk over damage
extents            the byte ranges that a read hands out
unindexed_buffer   the newest records, kept for the key index
"""
