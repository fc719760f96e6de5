"""Batch runs: process a file of requests in OpenAI's batch format."""
