"""Solutions, one file per notebook: short self-contained functions, each tested."""
