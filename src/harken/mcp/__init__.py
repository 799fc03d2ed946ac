"""The door for agents: the Model Context Protocol on stdio and over HTTP. `protocol` needs the extra `mcp`."""
