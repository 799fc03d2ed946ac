"""Harken watches the services people already use and starts their workflows when something happens there."""

__version__ = "0.1.0"
