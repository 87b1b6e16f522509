"""Replication: a log copied as bytes, queues built from it, a log cut, and the files of its epochs.

replicated_log   bytes read and appended, dispatched and cut
queue_builder    queue entries and the index's work for copied records
truncation       log, queues, index and checkpoint cut at one position
epoch_file       the epochs of a log, kept on the disk
identity_file    the broker's id in its group, kept on the disk
"""
