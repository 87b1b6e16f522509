"""Sending: messages prepared, batched, and delivered to a queue with retries."""
