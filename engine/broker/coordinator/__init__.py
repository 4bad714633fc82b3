"""What a broker coordinates for clients: ``groups`` and ``transactions``; the files here are what both stand on.

A coordinator keeps its states in an internal topic: ``ownership`` loads a partition's states when this broker becomes
its leader and drops them when it no longer is, ``writer`` appends, reports once a batch is replicated, and says
what a client is told if that failed.
"""
