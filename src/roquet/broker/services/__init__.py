"""Background services of the broker: each a loop around one pure step."""
