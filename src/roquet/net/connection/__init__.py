"""Connections: one peer at the other end of a socket, its calls, requests and replies."""
