"""Who a client is, and what it may do: logins, certificates, credentials, access lists.

``engine.kafka.acls.decide`` makes the decision about an operation. SCRAM credentials have their format in
``engine.kafka.formats.scram_credential`` and their znodes in ``engine.kafka.zk.configs``.
"""
