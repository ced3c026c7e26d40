"""Snapshots: the provider contract, the loader, capture, restore, conformance."""
