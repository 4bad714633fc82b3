"""What the frames of a watched cluster mean: causes, restart safety, moves and rates, throttles, timelines. Pure.

``history`` keeps what earlier frames said; everything else reads it and the newest frame. Faces show the results.
"""
