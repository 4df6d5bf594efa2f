"""Chips: data sheets, measured ceilings of this machine, and the roofline between them."""
