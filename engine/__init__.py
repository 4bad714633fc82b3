"""The broker engine and everything that acts on a cluster; layers are described in docs/architecture.md."""
