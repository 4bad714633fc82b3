"""Load for a cluster: records produced and consumed as fast as wanted, and the cost. Not a client for programs."""
