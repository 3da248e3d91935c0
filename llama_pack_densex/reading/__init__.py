"""Reads files on disk into documents: finds the files, names their documents, and extracts their text."""

from llama_pack_densex.reading.files import UnreadableFileError, find_files, is_media
from llama_pack_densex.reading.readers import read_file, read_files

__all__ = ["UnreadableFileError", "find_files", "is_media", "read_file", "read_files"]
