"""`densex`: the public functions on the command line. Nothing heavy is imported until a command runs."""

from llama_pack_densex.cli.app import app

__all__ = ["app"]
