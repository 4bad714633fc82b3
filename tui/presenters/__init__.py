"""What a frame and its past mean for an operator: pure functions to plain values, which screens only lay out."""
