"""Counters, meters and histograms as plain values."""
