"""`python -m harken.cli`: the same as `python -m harken`."""

from harken.cli import main

if __name__ == "__main__":
    main()
