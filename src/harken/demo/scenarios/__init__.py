"""The scenarios of `harken demo`: one module each, with `make(clock, random)`."""
