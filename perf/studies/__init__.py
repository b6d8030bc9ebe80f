"""One study a module."""
