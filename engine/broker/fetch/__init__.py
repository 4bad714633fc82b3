"""The path of Fetch: sessions, reads, conversion for old readers, and the answer."""
