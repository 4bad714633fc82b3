"""Sockets: the server, its connections, their TLS and their limits.

``server`` accepts connections within limits, and makes a ``connection`` with a ``session`` for each. ``inbox`` splits
what arrives into frames, ``routes`` finds decoder, handler and encoder by a frame's first four bytes, and ``sender``
(``tls`` on a TLS listener) writes the answers in order. Handlers are only callables here: this package knows no API.
"""
