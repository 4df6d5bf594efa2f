"""Number formats with few bits: codes, packing, scales and errors; one implementation for all."""
