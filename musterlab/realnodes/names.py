"""Names of services and of pods behind them, for the containers of a lab: a small DNS server over UDP.

`SERVICE.NAMESPACE.svc.cluster.local` resolves to the addresses of the service's ready pods, for every kind of service.
The lab does not route the addresses of services. `HOST.SERVICE.…` resolves to the pod with this host name.

Other names do not exist, because a lab has no connection to other networks. Standard library only.
https://github.com/kubernetes/dns/blob/master/docs/specification.md
"""

import http.client
import ipaddress
import json
import socket
import socketserver
import ssl
import struct
import sys
import urllib.parse
from collections.abc import Callable, Iterable, Mapping
from typing import Any

DOMAIN = ("svc", "cluster", "local")
ADDRESS_SECONDS = 1

_A, _INTERNET = 1, 1
_RESPONSE = 0x8400  # an authoritative answer
_FAILED, _NO_SUCH_NAME = 2, 3
_TIMEOUT_SECONDS = 5

Resolve = Callable[[tuple[str, ...]], list[str] | None]


class MalformedQuery(ValueError):
    """A packet that is not a DNS query."""


def answer(query: bytes, resolve: Resolve) -> bytes:
    """Return the answer to a DNS query. `resolve` returns the addresses of a name, None for an unknown name.

    Raises MalformedQuery.
    """
    try:
        identifier, flags, questions = struct.unpack_from("!HHH", query)
        labels, end = _labels(query)
        kind, family = struct.unpack_from("!HH", query, end)
    except (struct.error, UnicodeDecodeError, IndexError) as error:
        raise MalformedQuery(str(error)) from error
    if questions != 1:
        raise MalformedQuery(f"{questions} questions")
    try:
        addresses = resolve(tuple(label.lower() for label in labels))
        status = _NO_SUCH_NAME if addresses is None else 0
    except (OSError, ValueError, http.client.HTTPException) as error:
        print(f"{'.'.join(labels)} could not be looked up: {error}", file=sys.stderr, flush=True)
        addresses, status = None, _FAILED
    answers = list(addresses or []) if (kind, family) == (_A, _INTERNET) else []
    header = struct.pack("!HHHHHH", identifier, _RESPONSE | (flags & 0x0100) | status, 1, len(answers), 0, 0)
    records = b"".join(
        struct.pack("!HHHIH", 0xC00C, _A, _INTERNET, ADDRESS_SECONDS, 4)
        + ipaddress.IPv4Address(address).packed
        for address in answers
    )
    return header + query[12 : end + 4] + records


def _labels(query: bytes) -> tuple[list[str], int]:
    """Return the parts of the name in the query, and the position after the name."""
    labels, position = [], 12
    while length := query[position]:
        if length > 63:
            raise MalformedQuery("a label is too long, or compressed")
        labels.append(query[position + 1 : position + 1 + length].decode("ascii"))
        position += 1 + length
    return labels, position + 1


class Services:
    """The services of a cluster, read from its API server."""

    def __init__(self, port: int, authority: str, certificate: str, key: str) -> None:
        self._port = port
        self._tls = ssl.create_default_context(cafile=authority)
        self._tls.load_cert_chain(certificate, key)

    def resolve(self, labels: tuple[str, ...]) -> list[str] | None:
        """Return the addresses of a service's ready pods, or of the pod with the host name; None for an unknown
        name.
        """
        if labels[-3:] != DOMAIN or len(labels) not in (5, 6):
            return None
        namespace, service = labels[-4], labels[-5]
        host = labels[0] if len(labels) == 6 else None
        slices = self._slices(namespace, service)
        addresses = [
            address
            for endpoint in _endpoints(slices)
            if host is None or endpoint.get("hostname") == host
            for address in endpoint["addresses"]
        ]
        return addresses if addresses or (slices and host is None) else None

    def _slices(self, namespace: str, service: str) -> list[dict[str, Any]]:
        selector = urllib.parse.urlencode({"labelSelector": f"kubernetes.io/service-name={service}"})
        path = f"/apis/discovery.k8s.io/v1/namespaces/{urllib.parse.quote(namespace, safe='')}/endpointslices"
        connection = http.client.HTTPSConnection(
            "127.0.0.1", self._port, context=self._tls, timeout=_TIMEOUT_SECONDS
        )
        try:
            connection.request("GET", f"{path}?{selector}")
            reply = connection.getresponse()
            body = reply.read()
        finally:
            connection.close()
        if reply.status != http.HTTPStatus.OK:
            raise http.client.HTTPException(f"the API server answers {reply.status}")
        items: list[dict[str, Any]] = json.loads(body)["items"]
        return items


def _endpoints(slices: Iterable[Mapping[str, Any]]) -> Iterable[dict[str, Any]]:
    for endpoint_slice in slices:
        for endpoint in endpoint_slice.get("endpoints") or []:
            if endpoint.get("conditions", {}).get("ready", True):
                yield endpoint


def serve(bound: socket.socket, resolve: Resolve) -> None:
    """Answer questions on a UDP socket forever."""

    class Handler(socketserver.BaseRequestHandler):
        def handle(self) -> None:
            query, reply_to = self.request
            try:
                reply_to.sendto(answer(query, resolve), self.client_address)
            except MalformedQuery as error:
                print(f"from {self.client_address[0]}: {error}", file=sys.stderr, flush=True)

    address = bound.getsockname()
    with socketserver.ThreadingUDPServer(address, Handler, bind_and_activate=False) as server:
        server.socket.close()
        server.socket = bound
        server.serve_forever()
