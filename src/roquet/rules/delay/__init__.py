"""Delay: messages that come later, by level, by delivery time or after a failure."""
