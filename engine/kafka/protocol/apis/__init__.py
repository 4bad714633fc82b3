"""The messages: one module per API, named as the API in snake_case, holding its request, response and their structs.

Names are Kafka's: classes as in its message schemas, fields in snake_case. A comment at a field says only what the
name does not. ``engine.kafka.protocol.api_keys`` finds the module of an API; nothing here is imported before its use.
"""
