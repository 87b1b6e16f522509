"""What the broker does by itself: each a loop around one pure step."""
