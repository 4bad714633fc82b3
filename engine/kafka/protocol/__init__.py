"""Kafka's wire format without I/O: bytes in, values out, and back.

How the parts fit:

* ``api_keys``: every API with its version range, in one light table; message classes are imported on first use.
* ``declaration``, ``types``: declare a message once for all its versions. ``apis/`` holds one file per API.
* ``codec``: a decoder or encoder for one message in one version, compiled from the declaration on first use
  (``decoder_source`` and ``encoder_source`` write straight-line Python; ``wire`` is what that code calls;
  ``encoder_source.find_fault`` names the field if a value cannot be written). The encoded bytes go into an ``Outgoing``
  buffer, which also notes the file ranges to send directly.
* ``frames``: request and response headers, whole frames.
* ``records/``: record batches, which the messages carry as opaque bytes.

Malformed bytes raise only ``RemoteProtocolError``; a value that a version cannot carry raises ``LocalProtocolError``.
This package knows no sockets, no time, and no meaning (what a request does).
"""
