"""The RocketMQ protocol: bytes to values and back, without a socket or a file.

From the socket up:

    frame → command → fields → calls/        a request or reply, from bytes to a typed value
    compact                                  the binary header
    connection                               numbers requests, matches replies (no I/O)
    calls/                                   every request, with its reply and bodies
    records/                                 the message record, as on the disk and in replies
    replication/                             streams between master and replica, and their files
    fastjson/                                the JSON of Java peers
    request_body, registration               JSON bodies within limits
    receipt_handle                           texts of pops and timers that clients show again
    revive_records                           texts of pops in the revive topic
    trace_text, properties_file              texts of traces and of settings
    signing, java_hash, codes                signatures, hash codes, numbers of the protocol
"""
