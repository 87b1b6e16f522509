"""Delay: messages delivered later, by level, by delivery time or after a failure."""
