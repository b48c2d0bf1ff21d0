"""What the command line reports in one line."""


class UserError(Exception):
    """Something only the user can put right. The command line prints it and exits with code 2."""
