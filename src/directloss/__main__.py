"""``python -m directloss``, and the command ``directloss``."""

import sys


def main() -> None:
    """The command line, or one line that says what it needs."""
    from directloss.errors import need

    try:
        need("cyclopts", "the command line", extra="lab")
        need("rich", "the command line", extra="lab")
    except ImportError as error:
        print(f"directloss: {error}", file=sys.stderr)
        sys.exit(2)
    from directloss.cli import main as run

    run()


if __name__ == "__main__":
    main()
