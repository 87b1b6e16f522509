"""Handlers of consumer groups: members, their offsets, locks, and the queues that they get."""
