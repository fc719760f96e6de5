"""An OpenAI-compatible server: an HTTP process (never imports torch) and an engine process.

Reading order: messages, engine_loop, then pending_requests, replica and router in
`router`, then shapes, and schema, translate, choices, replies and app in `http`.
"""
