"""The small languages of configuration files: CEL conditions, Go templates, and `{field}` messages."""
