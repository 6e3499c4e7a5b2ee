"""``python -m treadle``: the command line where it is not installed."""

from treadle.cli.main import main

if __name__ == "__main__":
    main()
