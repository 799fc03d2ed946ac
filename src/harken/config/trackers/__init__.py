"""The trackers: and projects: sections: tickets that start pipelines."""
