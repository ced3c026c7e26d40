"""One file per command; the one place where errors become exit codes."""
