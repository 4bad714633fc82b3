"""Record batches of every magic, their compression and conversions. No I/O."""
