"""Find out why a server is slow or dead from its log, its ``/metrics`` page or a run's record."""
