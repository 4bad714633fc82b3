"""TLS as Kafka's clients set it up: stores and PEM texts become an ``ssl.SSLContext``."""
