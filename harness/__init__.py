"""Harness: servers as processes, what may happen to them, and whether they kept what they said."""
