"""Small outside systems on loopback that behave like real ones, faults included."""

from harken.testing.fakes.listing_server import Answer, Item, Listing, Seen

__all__ = ["Answer", "Item", "Listing", "Seen"]
