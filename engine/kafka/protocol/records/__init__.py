"""Record batches of every magic, their compression and conversions. No I/O.

``header`` walks through batches without touching a record; ``layout`` knows where the fields are. ``validate`` turns
what a producer sent into what the log keeps, by the ``append_rules`` of a topic. ``decode`` and ``encode`` are for code
that needs single records (``record``), ``legacy`` and ``convert`` for the formats v0 and v1. ``compression`` calls the
codec of a batch: ``snappy``, ``lz4``, ``zstd`` or the library's.
"""
