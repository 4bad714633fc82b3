"""Who somebody is, and what they may do: logins, certificates, users' credentials, access lists."""
