"""The client's side of the SASL mechanisms, without the network: each is a generator of messages to send."""
