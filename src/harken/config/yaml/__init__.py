"""YAML 1.2 as people mean it: parsed with positions, walked as nodes, written for people."""
