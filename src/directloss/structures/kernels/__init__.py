"""The compiled inner loops of structures."""
