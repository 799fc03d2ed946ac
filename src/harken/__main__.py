"""`python -m harken`, where the `harken` script is not on the path."""

from harken.cli import main

if __name__ == "__main__":
    main()
