"""The HTTP side of the server: routes, bodies and replies. It loads no torch."""
