"""`python -m secondguess.cli` is the `secondguess` command."""

from secondguess.cli import main

if __name__ == "__main__":
    main()
