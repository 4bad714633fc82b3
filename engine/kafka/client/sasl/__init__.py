"""The client's side of the SASL mechanisms, without any network: each is a generator of what to send."""
