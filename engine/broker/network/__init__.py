"""Sockets: the server, its connections, and the client that brokers and tools use."""
