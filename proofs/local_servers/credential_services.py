"""The services that have AWS credentials, on one port of loopback, by their documented protocols.

STS (AssumeRole, AssumeRoleWithWebIdentity), the portal of IAM Identity Center (GetRoleCredentials), the endpoint of ECS
and of the EKS Pod Identity agent, and the instance metadata service, version 2. Paths are compared as they are sent: a
request with a whole URL in place of a path is answered with 404.
"""

from __future__ import annotations

import hashlib
import json
import os
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, Final
from urllib.parse import parse_qs

Answer = tuple[int, str, str]
"""Status, body and content type."""

_NAMESPACE: Final = "https://sts.amazonaws.com/doc/2011-06-15/"
_ROLE: Final = "/latest/meta-data/iam/security-credentials/"
_TOKEN_TTL: Final = "x-aws-ec2-metadata-token-ttl-seconds"

_DENIED: Final = (
    f'<ErrorResponse xmlns="{_NAMESPACE}"><Error><Code>AccessDenied</Code><Message>no</Message></Error></ErrorResponse>'
)
OUTAGES: Final[Mapping[str, Answer]] = {
    "a proxy's 503 in plain text": (503, "upstream connect error or disconnect/reset before headers", "text/plain"),
    "a page in HTML with 200": (200, "<html><body>Please sign in</body></html>", "text/html"),
    "access denied": (403, _DENIED, "text/xml"),
    "nothing": (200, "", "text/plain"),
    "an empty object": (200, "{}", "application/json"),
    "unauthorized": (401, '{"__type":"UnauthorizedException","message":"Session token not found"}', "application/json"),
}  # fmt: skip
"""What may answer in their place for a while."""


@dataclass
class Asked:
    """A request that was answered. `action`: of STS, or the path."""

    action: str
    parameters: Mapping[str, str]
    signed_for: str
    authorization: str


@dataclass
class CredentialServices:
    """The services.

    `prefix`: of each secret. `lifetime`: of the credentials, in seconds. `outage`: what is answered instead. `skew`:
    seconds by which the clock is ahead, and signatures are checked by it. `container_token`: what the endpoint of the
    container wants in `Authorization`.
    """

    prefix: str = ""
    lifetime: float = 3600.0
    outage: Answer | None = None
    skew: float | None = None
    container_token: str | None = None
    asked: list[Asked] = field(default_factory=list)
    url: str = ""

    def credentials(self) -> dict[str, str]:
        """Return new credentials, with the names of STS."""
        number = len(self.asked)
        return {
            "AccessKeyId": f"AKIA{number}",
            "SecretAccessKey": f"{self.prefix}secret{number}",
            "SessionToken": f"{self.prefix}token{number}",
            "Expiration": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(self.now() + self.lifetime)),
        }

    def now(self) -> float:
        """Return the services' time."""
        return time.time() + (self.skew or 0.0)

    def answer(self, method: str, path: str, headers: Mapping[str, str], body: str) -> Answer:
        """Answer a request."""
        parameters = {name: values[0] for name, values in parse_qs(body).items()}
        authorization = headers.get("authorization", "")
        scope = authorization.partition("Credential=")[2].split("/")
        action = parameters.get("Action", path)
        self.asked.append(Asked(action, parameters, "/".join(scope[2:4]), authorization))
        if self.outage is not None:
            return self.outage
        if self.skew is not None and (refusal := self._refused(headers)):
            return refusal
        if method == "POST" and path == "/":
            return self._sts(action)
        if path.startswith("/federation/credentials?"):
            return self._portal()
        return self._container(authorization) if path == "/v1/credentials" else self._metadata(method, path, headers)

    def _container(self, authorization: str) -> Answer:
        if self.container_token is not None and authorization != self.container_token:
            return 403, "{}", "application/json"
        made = self.credentials()
        return 200, json.dumps({**made, "Token": made["SessionToken"]}), "application/json"

    def _refused(self, headers: Mapping[str, str]) -> Answer | None:
        signed = headers.get("x-amz-date")
        if signed is None:
            return None
        now = time.strftime("%Y%m%dT%H%M%SZ", time.gmtime(self.now()))
        at = time.mktime(time.strptime(signed, "%Y%m%dT%H%M%SZ")) - time.timezone
        if abs(at - self.now()) < 300:  # noqa: PLR2004 - what AWS allows
            return None
        words = "expired" if at < self.now() else "not yet current"
        text = f"Signature {words}: {signed} is now earlier than {now} ({now} {'-' if at < self.now() else '+'} 5 min.)"
        return _error(403, "SignatureDoesNotMatch", text)

    def _sts(self, action: str) -> Answer:
        made = self.credentials()
        fields = "".join(f"<{name}>{value}</{name}>" for name, value in made.items())
        user = "<AssumedRoleUser><Arn>arn:aws:sts::123456789012:assumed-role/r/efo</Arn></AssumedRoleUser>"
        text = (
            f'<{action}Response xmlns="{_NAMESPACE}"><{action}Result>{user}<Credentials>{fields}</Credentials>'
            f"</{action}Result></{action}Response>"
        )
        return 200, text, "text/xml"

    def _portal(self) -> Answer:
        made = self.credentials()
        role = {
            "accessKeyId": made["AccessKeyId"],
            "secretAccessKey": made["SecretAccessKey"],
            "sessionToken": made["SessionToken"],
            "expiration": int((self.now() + self.lifetime) * 1000),
        }
        return 200, json.dumps({"roleCredentials": role}), "application/json"

    def _metadata(self, method: str, path: str, headers: Mapping[str, str]) -> Answer:
        if method == "PUT" and path == "/latest/api/token" and _TOKEN_TTL in headers:
            return 200, f"{self.prefix}imds", "text/plain"
        if not path.startswith(_ROLE) or headers.get("x-aws-ec2-metadata-token") != f"{self.prefix}imds":
            return 404, "", "text/plain"
        if path == _ROLE:
            return 200, "reader", "text/plain"
        made = self.credentials()
        found = {**made, "Token": made["SessionToken"], "Code": "Success", "Type": "AWS-HMAC"}
        return 200, json.dumps(found), "application/json"


def _error(status: int, code: str, message: str) -> Answer:
    error = f"<Error><Code>{code}</Code><Message>{message}</Message></Error>"
    return status, f'<ErrorResponse xmlns="{_NAMESPACE}">{error}</ErrorResponse>', "text/xml"


@contextmanager
def serve_credentials(services: CredentialServices | None = None, port: int = 0) -> Iterator[CredentialServices]:
    """Serve on a port of loopback; yield the services, with their URL."""
    served = services or CredentialServices()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def _respond(self) -> None:
            headers = {name.lower(): value for name, value in self.headers.items()}
            body = self.rfile.read(int(self.headers.get("Content-Length") or 0)).decode()
            status, text, kind = served.answer(self.command, self.path, headers, body)
            self.send_response(status)
            self.send_header("Content-Type", kind)
            self.send_header("Content-Length", str(len(text.encode())))
            self.end_headers()
            self.wfile.write(text.encode())

        do_GET = do_POST = do_PUT = _respond  # noqa: N815 - the names of http.server

        def date_time_string(self, timestamp: float | None = None) -> str:
            return super().date_time_string(served.now() if timestamp is None else timestamp)

        def log_message(self, *_: object) -> None: ...

    class Server(ThreadingHTTPServer):
        daemon_threads = True

        def handle_error(self, *_: object) -> None: ...

    with Server(("127.0.0.1", port), Handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        served.url = f"http://127.0.0.1:{server.server_port}"
        try:
            yield served
        finally:
            server.shutdown()


# --- each provider of the chain, set up in a home -----------------------------------------------------------------


SetUp = Callable[[Path, CredentialServices], dict[str, str]]
"""Writes files below a home, and returns the variables of the environment."""


def irsa(home: Path, services: CredentialServices) -> dict[str, str]:
    """Set up a web identity, as EKS does for a service account with a role."""
    (home / "token").write_text(f"{services.prefix}eyJhbGciOi")
    return {
        "AWS_ROLE_ARN": "arn:aws:iam::123456789012:role/reader",
        "AWS_WEB_IDENTITY_TOKEN_FILE": str(home / "token"),
        "AWS_ENDPOINT_URL_STS": services.url,
    }


def pod_identity(home: Path, services: CredentialServices) -> dict[str, str]:
    """Set up the endpoint of the EKS Pod Identity agent."""
    services.container_token = f"{services.prefix}pod-token"
    (home / "pod-token").write_text(services.container_token)
    return {
        "AWS_CONTAINER_CREDENTIALS_FULL_URI": f"{services.url}/v1/credentials",
        "AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE": str(home / "pod-token"),
    }


def instance(_home: Path, services: CredentialServices) -> dict[str, str]:
    """Set up the role of an instance."""
    return {"AWS_EC2_METADATA_SERVICE_ENDPOINT": services.url, "AWS_EC2_METADATA_DISABLED": "false"}


def sso(home: Path, services: CredentialServices) -> dict[str, str]:
    """Set up a profile of IAM Identity Center, and log in."""
    aws = home / ".aws"
    (aws / "sso" / "cache").mkdir(parents=True, exist_ok=True)
    start = "https://example.awsapps.com/start"
    (aws / "config").write_text(
        f"[profile corp]\nsso_session = corp\nsso_account_id = 123456789012\nsso_role_name = dev\n"
        f"[sso-session corp]\nsso_region = us-east-1\nsso_start_url = {start}\n"
    )
    log_in(home, services.prefix)
    return {"AWS_PROFILE": "corp", "AWS_ENDPOINT_URL_SSO": services.url}


def log_in(home: Path, prefix: str, seconds: float = 3600.0) -> None:
    """Write the token of a session of IAM Identity Center, as `aws sso login` does."""
    path = home / ".aws" / "sso" / "cache" / f"{hashlib.sha1(b'corp').hexdigest()}.json"  # noqa: S324 - botocore's name
    ends = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(time.time() + seconds))
    token = {"startUrl": "https://example.awsapps.com/start", "region": "us-east-1", "accessToken": f"{prefix}sso"}
    path.write_text(json.dumps({**token, "expiresAt": ends}))


def process(home: Path, services: CredentialServices) -> dict[str, str]:
    """Set up a command that prints credentials: what is in the file `printed` of the home."""
    (home / ".aws").mkdir(exist_ok=True)
    (home / ".aws" / "config").write_text(f"[default]\ncredential_process = cat {home / 'printed'}\n")
    printed(home, services)
    return {}


def printed(home: Path, services: CredentialServices) -> None:
    """Let the command of `process` print new credentials."""
    services.asked.append(Asked("process", {}, "", ""))
    made: dict[str, Any] = {"Version": 1, **services.credentials()}
    (home / "printed").write_text(json.dumps(made))


def assumed(home: Path, services: CredentialServices) -> dict[str, str]:
    """Set up a profile that assumes a role with the credentials of another one."""
    (home / ".aws").mkdir(exist_ok=True)
    (home / ".aws" / "config").write_text(
        f"[profile base]\naws_access_key_id = AKBASE\naws_secret_access_key = {services.prefix}base\n"
        "[profile top]\nrole_arn = arn:aws:iam::123456789012:role/top\nsource_profile = base\n"
    )
    return {"AWS_PROFILE": "top", "AWS_ENDPOINT_URL_STS": services.url}


def static_file(home: Path, services: CredentialServices) -> dict[str, str]:
    """Set up a credentials file."""
    (home / ".aws").mkdir(exist_ok=True)
    (home / ".aws" / "credentials").write_text(
        f"[default]\naws_access_key_id = AKFILE\naws_secret_access_key = {services.prefix}file\n"
    )
    return {}


PROVIDERS: Final[Mapping[str, SetUp]] = {
    "assume-role-with-web-identity": irsa,
    "container-role": pod_identity,
    "iam-role": instance,
    "sso": sso,
    "custom-process": process,
    "assume-role": assumed,
    "shared-credentials-file": static_file,
}
"""How each provider is set up, by botocore's name of it."""


def clear(environ: Any = os.environ) -> None:
    """Remove all variables of AWS from an environment."""
    for name in [name for name in environ if name.startswith(("AWS_", "BOTO"))]:
        del environ[name]
