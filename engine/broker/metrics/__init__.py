"""What a broker counts and measures, as plain values under the names of Kafka's MBeans, and who may read it.

``measures`` has counters, meters and histograms; ``requests`` and ``topics`` are the figures that hot paths add to.
``engine.broker.server.figures`` collects all figures as MBeans (``mbean``); ``prometheus`` and ``jolokia`` put them
into text. ``reference`` writes the page that explains them.
"""
