"""The kernel for a problem where the caller names none."""
