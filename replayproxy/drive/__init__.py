"""Re-drive: recorded bytes to a live environment, answers read with h11."""
