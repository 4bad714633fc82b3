"""The path of Fetch: sessions, reads, conversion for old readers, and the answer.

``handlers.fetch`` opens the request's session in ``session_cache``, which names the partitions to read. ``reads`` reads
them and says whether the result is enough; ``large_fetch`` does so piece by piece if they are very many. ``conversion``
makes the old formats for readers before Fetch 4, and ``answer`` builds the response.
"""
