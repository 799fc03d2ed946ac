"""What the agent step needs: a workspace per ticket, a process that ends with us, its output, result and pushes."""
