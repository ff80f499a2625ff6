"""A deployment on this machine: SuperLink with TLS and node authentication, SuperNodes, some of them armed.

python deploy.py --folder /tmp/federation --nodes 8 --armed 1 --attack sign_flip --rounds 20

Makes keys and certificates, starts everything on loopback, plays the rounds, and ends it. The ledger stays in the
folder: the same command with more rounds goes on from there.
"""

from __future__ import annotations

import argparse
import datetime
import ipaddress
import json
import os
import signal
import ssl
import subprocess
import sys
import time
import urllib.error
import urllib.request
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat, PublicFormat
from cryptography.x509.oid import NameOID

APP = Path(__file__).parent
BIN = Path(sys.executable).parent


def make_certificates(folder: Path) -> None:
    """A certificate authority of our own, and a certificate of the server for loopback."""
    now = datetime.datetime.now(datetime.UTC)
    ca_key, key = ec.generate_private_key(ec.SECP384R1()), ec.generate_private_key(ec.SECP384R1())
    ca_name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "Example federation CA")])
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "localhost")])
    alternatives = [x509.DNSName("localhost"), x509.IPAddress(ipaddress.ip_address("127.0.0.1"))]

    def builder(subject: x509.Name, public: ec.EllipticCurvePublicKey) -> x509.CertificateBuilder:
        made = x509.CertificateBuilder().subject_name(subject).issuer_name(ca_name).public_key(public)
        made = made.serial_number(x509.random_serial_number())
        return made.not_valid_before(now).not_valid_after(now + datetime.timedelta(days=30))

    ca = builder(ca_name, ca_key.public_key()).add_extension(x509.BasicConstraints(ca=True, path_length=0), True)
    server = builder(name, key.public_key()).add_extension(x509.SubjectAlternativeName(alternatives), False)
    (folder / "ca.crt").write_bytes(ca.sign(ca_key, hashes.SHA384()).public_bytes(Encoding.PEM))
    (folder / "server.pem").write_bytes(server.sign(ca_key, hashes.SHA384()).public_bytes(Encoding.PEM))
    write_private(folder / "server.key", key, PrivateFormat.TraditionalOpenSSL)


def make_node_key(path: Path) -> None:
    """A SuperNode's own key pair: P-384 in OpenSSH form."""
    key = ec.generate_private_key(ec.SECP384R1())
    write_private(path, key, PrivateFormat.OpenSSH)
    path.with_suffix(".pub").write_bytes(key.public_key().public_bytes(Encoding.OpenSSH, PublicFormat.OpenSSH))


def write_private(path: Path, key: ec.EllipticCurvePrivateKey, form: PrivateFormat) -> None:
    path.touch(mode=0o600)
    path.write_bytes(key.private_bytes(Encoding.PEM, form, NoEncryption()))


class Deployment:
    """Processes on loopback, each in a session of its own: what it starts ends with it."""

    def __init__(self, folder: Path, port: int = 18200, app: Path = APP) -> None:
        self.folder, self.port, self.app = folder.resolve(), port, app
        self.running: dict[str, subprocess.Popen[bytes]] = {}
        (self.folder / "home").mkdir(parents=True, exist_ok=True)
        if not (self.folder / "ca.crt").exists():
            make_certificates(self.folder)
        root = f'address = "127.0.0.1:{port}"\nroot-certificates = "{self.folder / "ca.crt"}"\n'
        (self.folder / "home" / "config.toml").write_text(f"[superlink.here]\n{root}")
        self.env = {
            **os.environ,
            "PATH": f"{BIN}{os.pathsep}{os.environ['PATH']}",
            "FLWR_HOME": str(self.folder / "home"),
            "FLWR_TELEMETRY_ENABLED": "0",
            "FLWR_DISABLE_UPDATE_CHECK": "1",
            "FLWR_DISABLE_RUNTIME_DEPENDENCY_INSTALLATION": "1",
            "OPENBLAS_NUM_THREADS": "1",
        }

    def start(self, name: str, *command: str) -> subprocess.Popen[bytes]:
        with (self.folder / f"{name}.log").open("ab") as log:
            self.running[name] = subprocess.Popen(
                [str(BIN / command[0]), *command[1:]],
                env=self.env,
                cwd=self.folder,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        return self.running[name]

    def superlink(self) -> None:
        """The only port that must be reachable, and only its /v1/fleet part: see docs/production.md."""
        at = ("--host", "127.0.0.1", "--port", str(self.port), "--database", str(self.folder / "state.db"))
        tls = ("--ssl-ca-certfile", "ca.crt", "--ssl-certfile", "server.pem", "--ssl-keyfile", "server.key")
        self.start("superlink", "flower-superlink", *tls, "--enable-supernode-auth", *at)
        self.wait_for_superlink()

    def wait_for_superlink(self, seconds: float = 90) -> None:
        context = ssl.create_default_context(cafile=self.folder / "ca.crt")
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            try:
                urllib.request.urlopen(f"https://127.0.0.1:{self.port}/health", timeout=5, context=context)
                return
            except (urllib.error.URLError, OSError):
                time.sleep(0.5)
        raise TimeoutError(f"the SuperLink does not answer; see {self.folder / 'superlink.log'}")

    def supernode(self, number: int, config: str = "", register: bool = True) -> None:
        """A SuperNode with a key of its own, which the SuperLink must know."""
        key = self.folder / f"node{number}"
        if not key.exists():
            make_node_key(key)
            if register:
                self.flwr("supernode", "register", str(key.with_suffix(".pub")), "here", "--name", f"site-{number}")
        self.start(
            f"supernode{number}",
            "flower-supernode",
            *("--root-certificates", "ca.crt", "--auth-supernode-private-key", str(key)),
            *("--superlink", f"127.0.0.1:{self.port}", "--host", "127.0.0.1", "--port", str(self.port + 10 + number)),
            *("--node-config", f"partition-id={number} num-partitions=100 {config}".strip()),
        )

    def flwr(self, *arguments: str) -> str:
        done = subprocess.run(
            [str(BIN / "flwr"), *arguments], env=self.env, cwd=self.folder, capture_output=True, text=True, timeout=120
        )
        if done.returncode:
            raise RuntimeError(done.stdout + done.stderr)
        return done.stdout

    def run(self, config: str) -> str:
        """Start a run; its id."""
        started = self.flwr("run", str(self.app), "here", "--run-config", config, "--format", "json")
        return str(json.loads(started)["run-id"])

    def status(self, run: str) -> str:
        """`flwr run` exits 0 even if the run failed, so this is where to look."""
        runs = json.loads(self.flwr("list", "here", "--format", "json"))["runs"]
        return next(str(found["status"]) for found in runs if str(found["run-id"]) == run)

    def wait(self, run: str, seconds: float) -> str:
        end = time.monotonic() + seconds
        status = ""
        while time.monotonic() < end and not status.startswith("finished"):
            time.sleep(5)
            status = self.status(run)
        return status

    def kill(self, name: str, with_signal: int = signal.SIGKILL) -> None:
        process = self.running.pop(name)
        try:
            os.killpg(process.pid, with_signal)
            process.wait(timeout=15)
        except ProcessLookupError:
            process.wait()
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()

    def stop(self) -> None:
        for name in reversed(list(self.running)):
            self.kill(name, signal.SIGTERM)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--folder", type=Path, required=True, help="keys, logs and the ledger go here")
    parser.add_argument("--nodes", type=int, default=5)
    parser.add_argument("--armed", type=int, default=0, help="how many of the nodes attack")
    parser.add_argument("--attack", default="sign_flip")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--port", type=int, default=18200)
    options = parser.parse_args()
    deployment = Deployment(options.folder, options.port)
    try:
        deployment.superlink()
        for number in range(options.nodes):
            deployment.supernode(number, f'red-team="{options.attack}"' if number < options.armed else "")
        ledger, report = deployment.folder / "ledger", deployment.folder / "report.json"
        config = f"num-server-rounds={options.rounds} min-nodes={options.nodes} f={max(options.armed, 1)}"
        run = deployment.run(f'{config} ledger="{ledger}" report="{report}"')
        print("run", run, "ends", deployment.wait(run, 120 + 60 * options.rounds))
        print(report.read_text() if report.exists() else deployment.flwr("log", run, "here", "--show"))
        print(f"tesseract-fl ledger show {ledger}")
    finally:
        deployment.stop()


if __name__ == "__main__":
    main()
