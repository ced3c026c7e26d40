"""Bytes on disk: record codec, LMDB, writer thread, verification. The only importer of lmdb and zstandard."""
