"""Consume queues: from a queue offset to the position of a record, with checks and repair.

queue              one queue: entries written, read and searched
queues             all queues of a directory, opened when they are first used
entries            several entries at a time, by columns, or those with a tag
queue_ends         where queues ended at the last checkpoint, as a file
queue_check        compares these ends with the files when a store opens
queue_repair       compares entries with the log when they are first read
rebuild            makes entries again from the log
queue_stats        ends and sizes for statistics
topic_tombstones   deleted topics, whose records get no entries again
"""
