"""Limits: what a server lets all its connections take of memory, requests and the event loop."""
