"""Client quotas: limits for users and client ids on one broker, and how long a client over its limit is throttled."""
