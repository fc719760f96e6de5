"""The HTTP side of the server: routes, request bodies and replies. It never imports torch."""
