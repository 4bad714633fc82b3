"""A connection to a broker, for brokers among themselves and for tools.

``engine.admin.cluster.client_properties`` reads a client's properties file into the settings that this package takes.
"""
