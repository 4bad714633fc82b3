"""Sockets: the server, its connections, their TLS and their limits."""
