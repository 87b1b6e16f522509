"""Popping: messages taken one by one with a receipt handle, and acknowledged.

broker ──▶ pop_loop ──▶ pop_batch ──▶ prefetch_buffer ──▶ handler
   ▲                                                         │
   └───────────── acks: in bulk, retries, extensions ◀───────┘
"""
