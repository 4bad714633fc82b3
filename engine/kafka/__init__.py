"""What Kafka is, whoever serves it: the wire protocol, the file formats, the settings, the znodes, and connections to a broker.

Both programs stand on it, the broker and the operations on any cluster. It knows neither.
"""
