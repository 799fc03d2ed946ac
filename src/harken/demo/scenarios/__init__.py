"""What `harken demo` can put on: one module each, with `make(clock, random)`."""
