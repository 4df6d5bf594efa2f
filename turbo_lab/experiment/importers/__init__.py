"""Result files of other clients as records, each metric under its own tool's definition."""

from turbo_lab.experiment.importers.load import import_file

__all__ = ["import_file"]
