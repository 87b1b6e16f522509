"""Bytes to disk: one writer, many readers; synchronous, and time is always an argument.

    store              the facade: append, read, search, flush, delete, close
    check, dump        a directory examined, and files shown, without opening the store
    ───────────────────────────────────────────────────────────────────────────────
    replication/       the log copied as bytes, dispatched and cut; files of epochs and identity
    ───────────────────────────────────────────────────────────────────────────────
    recovery/          open a directory after a stop or a crash; the scrub of the older log
    reading/           records by offset, by time, by position and by key
    writer             a message becomes a record and a queue entry
    flush, retention   what becomes durable, and what expires
    ───────────────────────────────────────────────────────────────────────────────
    commit_log/        all messages in order of arrival             position → record
    consume_queue/     one array of entries for each queue          offset → position
    key_index/         hash tables of keys                          key → positions
    timer/             messages that wait for their delivery time   second → messages
    ───────────────────────────────────────────────────────────────────────────────
    filesystem/        files, maps, segments, locks
    layout, config     byte layouts, sizes

Only the commit log is the truth: queues, index and timers can be rebuilt from it. One thread
appends and reads; others only make durable what they are handed.
"""
