"""A browser without a screen: opens the address that it is given, and follows where it is sent."""

from __future__ import annotations

import sys
from urllib.request import urlopen

if __name__ == "__main__":
    urlopen(sys.argv[1], timeout=200).read()
