"""Commands on messages: roquet produce, consume, message, dlq, set-aside."""
