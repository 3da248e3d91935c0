"""`python -m llama_pack_densex` is the command `densex`."""

from llama_pack_densex.cli.app import app

if __name__ == "__main__":
    app(prog_name="densex")
