"""Conditions in CEL: compiled, bounded in cost, and explained when they are false."""
