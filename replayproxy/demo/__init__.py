"""The embedded environment with its seeded faults, and its scripted agent."""
