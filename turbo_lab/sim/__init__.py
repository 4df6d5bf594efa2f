"""A discrete-event simulator of serving engines, calibrated on a live server."""
