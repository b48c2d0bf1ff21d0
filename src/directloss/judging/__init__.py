"""What is right: exact values by enumeration, rules measured against them, and solvers checked."""
