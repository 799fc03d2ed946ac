"""What Harken is tested with, shipped so that authors of services and stores can test with it too.

The suites need pytest and are imported by name: harken.testing.source, harken.testing.store.
"""

from harken.testing.clock import START, Deadlock, HandClock, VirtualClock, VirtualLoop, run_virtual, virtual
from harken.testing.scripted import Change, Fault, Item, World, WorldSource

__all__ = [
    "START",
    "Change",
    "Deadlock",
    "Fault",
    "HandClock",
    "Item",
    "VirtualClock",
    "VirtualLoop",
    "World",
    "WorldSource",
    "run_virtual",
    "virtual",
]
