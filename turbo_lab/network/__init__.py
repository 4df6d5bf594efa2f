"""The network between hosts: what a message costs, and shaped links to measure it on."""
