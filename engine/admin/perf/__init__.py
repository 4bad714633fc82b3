"""Load for a cluster: produces and consumes records at a wanted rate, and measures the cost. Not a client library."""
