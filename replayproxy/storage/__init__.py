"""Bytes on disk: record codec, LMDB, writer thread, verification. The only importer of lmdb and zstandard."""

from replayproxy.storage.reader import Reader
from replayproxy.storage.resolve import Resolved
from replayproxy.storage.sink import BodySink, TalkSink
from replayproxy.storage.store import Store, default_path, open_store
from replayproxy.storage.writer import Writer

__all__ = ["BodySink", "Reader", "Resolved", "Store", "TalkSink", "Writer", "default_path", "open_store"]
