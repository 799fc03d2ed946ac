"""The three small languages that users write: conditions, templates, and `{field}` messages."""
