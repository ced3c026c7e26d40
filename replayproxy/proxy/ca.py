"""The certificate authority of one store: made once, under `STORE/ca`, readable by its owner only.

Nothing is ever written to the user's home. Who is to trust it gets a bundle file: the roots it had, and ours.
"""

from __future__ import annotations

import os
import shutil
import ssl
import tempfile
from base64 import b64encode
from collections.abc import Iterable, Mapping
from hashlib import sha256
from pathlib import Path

import certifi
from mitmproxy.addons.tlsconfig import _ip_or_dns_name
from mitmproxy.certs import CertStore, CertStoreEntry

from replayproxy.errors import StoreTrouble

_NAME = "replayproxy"
_KEY_BITS = 2048

_RSA_2048 = bytes.fromhex("30820122300d06092a864886f70d01010105000382010f00")
_RSA_2048_LENGTH = 294
"""How the public key of such a key begins in a certificate, and how long it is."""


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

    def server_context(self, names: Iterable[str]) -> ssl.SSLContext:
        """For a server of our own that who trusts us is to trust."""
        entry = self.certificate_for(names)
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        with tempfile.NamedTemporaryFile(dir=self.folder, suffix=".pem") as file:
            file.write(entry.cert.to_pem())
            file.flush()
            # mitmproxy gives every certificate the authority's own key.
            context.load_cert_chain(file.name, self.folder / f"{_NAME}-ca.pem")
        return context

    @property
    def key_hash(self) -> str:
        """Of the public key of our certificates, as Chromium's `--ignore-certificate-errors-spki-list` takes it:
        Chromium reads no variable that names a CA. "" where somebody put an authority of another kind in its place."""
        der = ssl.PEM_cert_to_DER_cert(self.store.default_ca.to_pem().decode())
        at = der.find(_RSA_2048)
        return "" if at < 0 else b64encode(sha256(der[at : at + _RSA_2048_LENGTH]).digest()).decode()

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
    spare = (system.cafile or system.openssl_cafile, certifi.where())
    default = next((one for one in spare if one and Path(one).is_file()), None)
    # Each file once: the variables mostly name the same one, and reading it takes a client 60 ms each time.
    paths = dict.fromkeys(Path(one) for one in (*named, default) if one)
    return b"\n".join(path.read_bytes() for path in paths if path != own and path.is_file())
