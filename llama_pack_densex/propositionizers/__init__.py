"""From passages to propositions: by an LLM, by recorded replies, by sentences."""
