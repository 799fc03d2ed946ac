"""Reading: polls, webhooks and streams, each into the same commit."""
