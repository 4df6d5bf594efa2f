"""In-network aggregation of attention: the merge, its fixed-point tables, a switch that does it."""
