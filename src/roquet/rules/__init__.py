"""The decisions: pure functions of facts, now and chance."""
