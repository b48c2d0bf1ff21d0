"""What the report is made of."""
