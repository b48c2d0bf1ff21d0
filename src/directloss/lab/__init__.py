"""What every experiment shares: its command, store, workers, tables, figures and report page."""
