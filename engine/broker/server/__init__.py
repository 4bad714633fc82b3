"""A whole broker: the one place that assembles its parts, and starts and stops them in order.

``python -m engine.broker.server FILE.properties [--override key=value]…`` runs one in the foreground.
"""
