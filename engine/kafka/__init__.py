"""What Kafka is, whoever serves it: wire protocol, file formats, settings, znodes, and connections to a broker.

Both programs are built on it: the broker, and the operations on any cluster. It knows neither.
"""
