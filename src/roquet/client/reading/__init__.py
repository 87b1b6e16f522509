"""Reading: queues pulled, messages handed to handlers, retries, and committed offsets.

    broker ─▶ pull_request ─▶ queue_reader or ordered_reader ─▶ inbox ─▶ handler_pool ─▶ handler
                                       ▲                                                    │
                                       └── message: settled or failed ◀── handler_result ◀──┘
                                                              │
                                                              └──▶ retry ──▶ broker

`offsets` and `local_offsets` keep how far a group or a broadcasting member has read.
"""
