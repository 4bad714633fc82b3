"""klamm's public door: the program (``python -m klamm``), and ``klamm.testing`` for other people's tests.

Everything else is klamm's own, and only its processes can import it.
"""
