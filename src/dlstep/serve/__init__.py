"""An HTTP server that OpenAI clients can talk to: one process for HTTP, which loads no torch, and one for the engine.

Reading order: messages, engine_loop, engine_process, link, tickets, front, then shapes, schema, translate, choices,
replies, app.
"""
