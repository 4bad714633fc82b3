"""klamm's public door: the program (``python -m klamm``), and ``klamm.testing`` for other people's tests.

All else is klamm's own, and importable inside its processes alone.
"""
