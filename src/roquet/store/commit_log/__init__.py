"""The commit log: every message of every topic, appended in order of arrival.

log                append, read, walk over damage
unindexed_buffer   the newest records, kept for the key index
"""
