"""The ``turbo-lab`` command line: one file per command."""
