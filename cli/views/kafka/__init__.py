"""What Kafka's own tools print, byte for byte: scripts of many years parse it.

Source: the output of Apache Kafka 3.9.1's tools, recorded in ``fixtures/kafka-tools/said.json`` and compared live in
``tests/interop/test_words_of_kafka_tools.py``.
"""
