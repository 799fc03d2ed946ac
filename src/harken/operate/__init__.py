"""What a person or program may do: the CLI, the HTTP API, MCP and the UI call these and nothing deeper.

Nothing is imported here: a command that asks a running controller needs only `controller_file` of it.
"""
