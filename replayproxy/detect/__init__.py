"""Judges: one file per kind of finding, pure functions of an episode or a run."""
