"""The HTTP API. `routes` is light and shared with the CLI; `app` builds the ASGI application."""
