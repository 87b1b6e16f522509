"""The message record and its parts: host, properties, compression, batch, message id."""
