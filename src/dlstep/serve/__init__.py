"""An OpenAI-compatible server: an HTTP process (never imports torch) and an engine process.

Reading order: messages, engine_loop, engine_process, link, tickets, front, then shapes, schema, translate, choices,
replies, app.
"""
