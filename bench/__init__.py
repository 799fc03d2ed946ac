"""Measurements: each figure beside its limit, taken in the same run. See docs/how-to/measure.md."""
