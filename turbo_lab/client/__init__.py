"""Requests out, timelines back, over HTTP with server-sent events."""
