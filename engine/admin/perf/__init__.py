"""Load for a cluster: records produced and consumed as fast as wanted, and what that took. No client for programs."""
