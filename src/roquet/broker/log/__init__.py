"""The broker's log: messages appended, made durable, and those who wait for them."""
