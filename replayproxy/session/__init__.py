"""Composes the parts into record, replay, re-drive, diff and check."""
