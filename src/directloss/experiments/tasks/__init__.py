"""The decisions that are learned, one task a file: its data, its net and its published settings."""
