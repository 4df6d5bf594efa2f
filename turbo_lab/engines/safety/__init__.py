"""What makes a server safe to leave running: rows of the checklist, one file per noun."""
