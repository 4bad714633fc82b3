"""A whole broker: the one place where its parts are put together, started in order and ended in order.

``python -m engine.server FILE.properties [--override key=value]…`` runs one in the foreground.
"""
