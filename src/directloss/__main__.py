"""``python -m directloss``."""

from directloss.cli import main

main()
