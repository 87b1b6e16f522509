"""Copies: the master's tables at a replica, never ahead of its log."""
