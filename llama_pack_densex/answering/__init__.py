"""From retrieved nodes to an answer: by an LLM over the assembled context, or word for word without one."""
