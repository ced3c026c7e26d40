"""The certificate authority of one store: made once, under `STORE/ca`, readable by its owner only.

Nothing is ever written to the user's home. Who is to trust it gets a bundle file: the roots it had, and ours.
"""

from __future__ import annotations

import os
import shutil
import ssl
import tempfile
from collections.abc import Iterable, Mapping
from pathlib import Path

import certifi
from mitmproxy.addons.tlsconfig import _ip_or_dns_name
from mitmproxy.certs import CertStore, CertStoreEntry

from replayproxy.errors import StoreTrouble

_NAME = "replayproxy"
_KEY_BITS = 2048


class Authority:
    """Certificates for the names that agents ask for."""

    def __init__(self, folder: Path) -> None:
        """Makes the CA where there is none. Raises StoreTrouble."""
        self.folder = folder
        try:
            if not folder.exists():
                _make(folder)
            self.store = CertStore.from_store(folder, _NAME, _KEY_BITS)
        except (OSError, ValueError) as error:
            raise StoreTrouble(
                f"the certificate authority in {folder} cannot be used: {error}", hint=f"remove {folder}"
            ) from None

    @property
    def certificate(self) -> Path:
        """Ours alone, in PEM."""
        return self.folder / f"{_NAME}-ca-cert.pem"

    def certificate_for(self, names: Iterable[str]) -> CertStoreEntry:
        """One that is valid for all of these hosts; the first is its common name."""
        given = tuple(dict.fromkeys(name for name in names if name))
        return self.store.get_cert(given[0] if given else None, [_ip_or_dns_name(name) for name in given])

    def bundle(self, environ: Mapping[str, str]) -> Path:
        """A file of the roots that `environ` trusts, and ours; written anew each time."""
        path = self.folder / "bundle.pem"
        ours = self.store.default_ca.to_pem()
        roots = _roots(environ, path)
        handle, name = tempfile.mkstemp(dir=self.folder)
        with os.fdopen(handle, "wb") as out:
            out.write(roots.rstrip() + b"\n" + ours)
        Path(name).replace(path)
        return path


def _make(folder: Path) -> None:
    """In a directory beside, and then moved: who comes at the same time sees a whole one or none."""
    folder.parent.mkdir(parents=True, exist_ok=True)
    made = Path(tempfile.mkdtemp(prefix=".ca-", dir=folder.parent))  # mode 0700
    try:
        CertStore.create_store(made, _NAME, _KEY_BITS, organization="replayproxy", cn="replayproxy (local)")
        for one in made.iterdir():
            one.chmod(0o600)
        made.rename(folder)
    except OSError:
        shutil.rmtree(made, ignore_errors=True)
        if not folder.is_dir():
            raise


def _roots(environ: Mapping[str, str], own: Path) -> bytes:
    """What clients trust without us: the file that the user set, else the system's, else certifi's."""
    named = [environ.get(name) for name in ("SSL_CERT_FILE", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE")]
    system = ssl.get_default_verify_paths()
    found = []
    for candidate in (*named, system.cafile or system.openssl_cafile, certifi.where()):
        path = Path(candidate) if candidate else None
        if path is None or path == own or not path.is_file():
            continue
        found.append(path.read_bytes())
        if candidate not in named:
            break  # the system's; certifi's only where there is none
    return b"\n".join(found)
