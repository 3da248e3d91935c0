"""Answers from retrieved nodes: written by an LLM over the assembled context, or quoted without one."""
