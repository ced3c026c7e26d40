"""Decides: values, names, canonical form, matching, alignment, comparison. No I/O, no clock, no randomness."""
