"""Finite sets with exact maximisers, one a file. They know nothing about learning."""
