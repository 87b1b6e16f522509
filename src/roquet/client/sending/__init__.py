"""Sending: messages prepared, batched, and delivered to a queue with retries.

    Message ──▶ prepare ──▶ batching, send_many or one by one ──▶ delivery ──▶ broker
                                              selectors, fault_tolerance choose the queue

`rules.send_retry` decides on retries; `outstanding_sends` is how sends of a key and a flush wait.
"""
