"""The only importer of mitmproxy: flows to core values, listeners, the record add-on."""
