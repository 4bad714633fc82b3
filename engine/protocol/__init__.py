"""Kafka's wire format without I/O: bytes in, values out, and back.

How the parts fit:

* ``api_keys``: every API with its version range, in one light table; message classes are imported on first use.
* ``declaration``, ``types``: how a message is declared, once for all its versions. ``apis/`` holds one file per API.
* ``codec``: a decoder or encoder for one message in one version, compiled from the declaration on first use
  (``decoder_source`` and ``encoder_source`` write straight-line Python; ``wire`` is what that code calls;
  ``diagnosis`` finds out which field was at fault when a value cannot be written). What is encoded goes into an
  ``Outgoing`` buffer, which notes the file ranges that are sent from where they lie.
* ``frames``: request and response headers, whole frames.
* ``records/``: record batches, which the messages carry as opaque bytes.

Malformed bytes raise ``RemoteProtocolError`` and nothing else; a value that a version cannot carry raises
``LocalProtocolError``. Sockets, time and meaning (what a request does) are not known here.
"""
