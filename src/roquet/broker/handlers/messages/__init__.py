"""Handlers of messages: send, pull, pop, acknowledge, look up, delay, recall, transactions."""
