"""aioquic's HTTP/3 and QUIC, as a server or as clients that check another server.

    aio.py server [retry]      listens on a port of 127.0.0.1, prints it, serves h3 and raw until its input ends
    aio.py client PORT STEP..  asks that server in these ways, prints "ok STEP" for each, or why not and exits with 1

"raw" is a protocol without HTTP: each stream and each datagram comes back as it was.
"""

import asyncio
import datetime
import socket
import ssl
import sys

from aioquic.asyncio import QuicConnectionProtocol, connect, serve
from aioquic.h3.connection import H3Connection
from aioquic.h3.events import DataReceived, DatagramReceived, HeadersReceived
from aioquic.quic.configuration import QuicConfiguration
from aioquic.quic.events import (
    ConnectionTerminated,
    DatagramFrameReceived,
    HandshakeCompleted,
    ProtocolNegotiated,
    StreamDataReceived,
    StreamReset,
)
from aioquic.quic.packet import QuicProtocolVersion
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec

# A machine with twenty other programs on it is slow; a test that hangs is ended all the same.
PATIENCE = 60
WINDOW = 1 << 20


def expect(seen, wanted):
    if seen != wanted:
        raise AssertionError(f"{str(seen)[:200]!r} instead of {str(wanted)[:200]!r}")


def pattern(length):
    return bytes(range(251)) * (length // 251) + bytes(range(length % 251))


class Stream:
    """What comes on one stream of HTTP."""

    def __init__(self):
        self.events = asyncio.Queue()

    async def next(self):
        event = await self.events.get()
        if isinstance(event, Exception):
            raise event
        return event


class Peer(QuicConnectionProtocol):
    """One connection, of either end: h3, or raw."""

    def __init__(self, *given, **named):
        super().__init__(*given, **named)
        self.http = None
        self.streams = {}
        self.raw_datagrams = asyncio.Queue()
        self.complete = None
        self.tasks = set()
        self.is_client = self._quic.configuration.is_client
        if self.is_client and self._quic.configuration.alpn_protocols == ["h3"]:
            self.http = H3Connection(self._quic, enable_webtransport=True)

    def quic_event_received(self, event):
        if isinstance(event, ProtocolNegotiated) and event.alpn_protocol == "h3" and not self.http:
            self.http = H3Connection(self._quic, enable_webtransport=True)
        if isinstance(event, HandshakeCompleted):
            self.complete = event
        if isinstance(event, ConnectionTerminated):
            for stream in self.streams.values():
                stream.events.put_nowait(ConnectionError(f"{event.error_code:#x} {event.reason_phrase}"))
        if isinstance(event, StreamReset) and event.stream_id in self.streams:
            self.streams[event.stream_id].events.put_nowait(ConnectionError(f"reset {event.error_code:#x}"))
        if self.http:
            for seen in self.http.handle_event(event):
                self.take(seen)
        elif isinstance(event, StreamDataReceived):
            if self.is_client:
                self.stream(event.stream_id).events.put_nowait(event)
            else:
                self._quic.send_stream_data(event.stream_id, event.data, event.end_stream)
        elif isinstance(event, DatagramFrameReceived):
            if self.is_client:
                self.raw_datagrams.put_nowait(event.data)
            else:
                self._quic.send_datagram_frame(event.data)

    def take(self, event):
        fresh = event.stream_id not in self.streams
        self.stream(event.stream_id).events.put_nowait(event)
        if fresh and not self.is_client:
            task = asyncio.ensure_future(answer(self, event.stream_id))
            self.tasks.add(task)
            task.add_done_callback(self.tasks.discard)

    def stream(self, number):
        return self.streams.setdefault(number, Stream())

    def data(self, number, data, end=False):
        self.http.send_data(number, data, end)
        self.transmit()

    async def room(self, number):
        """Waits until what was written before is on its way: aioquic itself queues without a bound."""
        sender = self._quic._streams[number].sender
        while sender._buffer_stop - sender._buffer_start > WINDOW:
            await asyncio.sleep(0.001)

    def ask(self, method, path, fields=(), end=True):
        """Sends a request's head; the number of its stream."""
        number = self._quic.get_next_available_stream_id()
        self.stream(number)
        head = [(b":method", method), (b":scheme", b"https"), (b":authority", b"localhost"), (b":path", path)]
        if method == b"CONNECT":
            head.append((b":protocol", fields[0]))
            fields = fields[1:]
        self.http.send_headers(number, head + list(fields), end)
        self.transmit()
        return number

    async def whole(self, number):
        """Head, body and trailers of a response."""
        head, body, trailers, ended = None, b"", None, False
        while not ended:
            event = await self.stream(number).next()
            if isinstance(event, HeadersReceived):
                fields = dict(event.headers)
                if fields.get(b":status", b"").startswith(b"1"):
                    continue
                if head is None:
                    head = fields
                else:
                    trailers = fields
            elif isinstance(event, DataReceived):
                body += event.data
            ended = getattr(event, "stream_ended", False)
        return head, body, trailers

    async def move(self, another_id):
        """Goes on from another port; with the id it has, as behind a NAT that forgot it, or with another."""
        before = self._transport
        place = socket.socket(socket.AF_INET6, socket.SOCK_DGRAM)
        place.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
        place.bind(("::", 0))
        await asyncio.get_running_loop().create_datagram_endpoint(lambda: self, sock=place)
        before.close()
        if another_id:
            self.change_connection_id()
        await self.ping()


def client(alpn="h3", **more):
    return QuicConfiguration(
        alpn_protocols=[alpn], verify_mode=ssl.CERT_NONE, server_name="localhost", max_datagram_frame_size=65536, **more
    )


def to(port, configuration, **more):
    return connect("127.0.0.1", port, configuration=configuration, create_protocol=Peer, **more)


async def methods(port):
    async with to(port, client()) as peer:
        # Not HEAD: aioquic takes the length of what is not sent for a mistake.
        for method in (b"GET", b"POST", b"DELETE", b"PATCH", b"OPTIONS"):
            head, body, _ = await peer.whole(peer.ask(method, b"/about"))
            expect((head[b":status"], body), (b"200", method + b" HTTP/3.0 -"))
        # Many at once, with fields that would be worth a dynamic table.
        cookies = [(b"cookie", b"c" * 200), (b"user-agent", b"u" * 200)]
        numbers = [peer.ask(b"GET", b"/about", cookies) for _ in range(100)]
        for number in numbers:
            expect((await peer.whole(number))[1], b"GET HTTP/3.0 -")
        head, _, _ = await peer.whole(peer.ask(b"GET", b"/none"))
        expect(head[b":status"], b"404")


async def body(port):
    async with to(port, client()) as peer:
        # In turns: nothing may wait for the end.
        number = peer.ask(b"POST", b"/echo", end=False)
        head = await peer.stream(number).next()
        expect(dict(head.headers)[b":status"], b"200")
        for part in (b"one", b"two", b"three"):
            peer.data(number, part)
            seen = b""
            while len(seen) < len(part):
                seen += (await peer.stream(number).next()).data
            expect(seen, part)
        peer.data(number, b"", True)
        expect((await peer.whole(number))[1], b"")
        # As fast as it goes.
        data = pattern(1_500_000)
        number = peer.ask(b"POST", b"/echo", end=False)
        reading = asyncio.ensure_future(peer.whole(number))
        for at in range(0, len(data), 50_000):
            peer.data(number, data[at : at + 50_000], at + 50_000 >= len(data))
            await peer.room(number)
        _, back, _ = await reading
        if back != data:
            raise AssertionError(f"{len(back)} bytes of {len(data)} came back, or others")


async def trailers(port):
    async with to(port, client()) as peer:
        _, said, fields = await peer.whole(peer.ask(b"GET", b"/trailers"))
        expect((said, fields), (b"one two", {b"x-end": b"yes"}))
        number = peer.ask(b"POST", b"/sum", end=False)
        peer.data(number, b"ab")
        peer.http.send_headers(number, [(b"x-end", b"yes")], True)
        peer.transmit()
        expect((await peer.whole(number))[1], b"2 195 yes")


async def early(port):
    tickets, said, resumed = [], [], 0
    for _ in range(30):
        ticket = tickets.pop() if tickets else None
        configuration = client(session_ticket=ticket)
        async with to(port, configuration, session_ticket_handler=tickets.append, wait_connected=ticket is None) as peer:
            safe = peer.ask(b"GET", b"/about")
            other = peer.ask(b"POST", b"/about")
            _, answer, _ = await peer.whole(safe)
            status = (await peer.whole(other))[0][b":status"]
            if ticket is None:
                expect((answer, status), (b"GET HTTP/3.0 -", b"200"))
            else:
                # What the first flight brings is early for as long as the handshake is not complete: the answer to it can come later.
                expect((peer.complete.session_resumed, peer.complete.early_data_accepted), (True, True))
                resumed += 1
            said.append((answer, status))
            while not tickets:
                await peer.ping()
        if (b"GET HTTP/3.0 1", b"425") in said and resumed > 1:
            return
    raise AssertionError(f"never early: {said}")


async def datagrams(port):
    async with to(port, client()) as peer:
        number = peer.ask(b"CONNECT", b"/tunnel", [b"echo"], end=False)
        head = await peer.stream(number).next()
        expect(dict(head.headers)[b":status"], b"200")
        settings = peer.http.received_settings
        expect((settings[0x33], settings[0x08]), (1, 1))
        peer.data(number, b"through")
        seen = await peer.stream(number).next()
        expect(seen.data, b"through")
        for _ in range(100):
            peer.http.send_datagram(number, b"and")
            peer.transmit()
            try:
                seen = await asyncio.wait_for(peer.stream(number).next(), 0.3)
            except asyncio.TimeoutError:
                continue
            expect((type(seen), seen.data), (DatagramReceived, b"back and"))
            break
        else:
            raise AssertionError("no datagram came back")
        peer.data(number, b"", True)
        while not getattr(seen, "stream_ended", False):
            seen = await peer.stream(number).next()


async def path(port):
    async with to(port, client()) as peer:
        number = peer.ask(b"POST", b"/echo", end=False)
        await peer.stream(number).next()
        for turn in range(6):
            part = b"part %d" % turn
            peer.data(number, part)
            expect((await peer.stream(number).next()).data, part)
            await peer.move(another_id=turn % 2 == 0)
        peer.data(number, b"", True)
        expect((await peer.whole(number))[1], b"")


async def keys(port):
    async with to(port, client()) as peer:
        for _ in range(5):
            peer.request_key_update()
            expect((await peer.whole(peer.ask(b"GET", b"/about")))[1], b"GET HTTP/3.0 -")
            await peer.ping()


async def versions(port):
    # It begins with a version that this server does not speak, and is told.
    async with to(port, client(original_version=QuicProtocolVersion.VERSION_2)) as peer:
        expect((await peer.whole(peer.ask(b"GET", b"/about")))[1], b"GET HTTP/3.0 -")
        expect(peer._quic._version, QuicProtocolVersion.VERSION_1)


async def cancel(port):
    async with to(port, client()) as peer:
        for _ in range(20):
            number = peer.ask(b"GET", b"/forever")
            peer._quic.reset_stream(number, 0x10C) if number % 8 else None
            peer._quic.stop_stream(number, 0x10C)
            peer.transmit()
        expect((await peer.whole(peer.ask(b"GET", b"/about")))[1], b"GET HTTP/3.0 -")


async def raw(port):
    async with to(port, client("raw")) as peer:
        numbers = []
        data = pattern(200_000)
        for _ in range(5):
            number = peer._quic.get_next_available_stream_id()
            peer.stream(number)
            peer._quic.send_stream_data(number, data, True)
            numbers.append(number)
        peer.transmit()
        for number in numbers:
            back, ended = b"", False
            while not ended:
                event = await peer.stream(number).next()
                back, ended = back + event.data, event.end_stream
            if back != data:
                raise AssertionError(f"{len(back)} bytes came back, or others")
        await peer.move(another_id=True)
        for _ in range(100):
            peer._quic.send_datagram_frame(b"a datagram")
            peer.transmit()
            try:
                expect(await asyncio.wait_for(peer.raw_datagrams.get(), 0.3), b"a datagram")
                return
            except asyncio.TimeoutError:
                pass
        raise AssertionError("no datagram came back")


def frame(opcode, payload):
    """A frame of a WebSocket's client, its mask being nought."""
    return bytes([0x80 | opcode, 0x80 | len(payload)]) + b"\0\0\0\0" + payload


async def websocket(port):
    """RFC 9220: a WebSocket whose server sends back each message."""
    async with to(port, client()) as peer:
        number = peer.ask(b"CONNECT", b"/chat", [b"websocket", (b"sec-websocket-version", b"13")], end=False)
        head = await peer.stream(number).next()
        expect(dict(head.headers)[b":status"], b"200")
        for opcode, text in ((1, "grüße".encode()), (2, bytes(range(100)))):
            peer.data(number, frame(opcode, text))
            seen = b""
            while len(seen) < 2 + len(text):
                seen += (await peer.stream(number).next()).data
            expect(seen, bytes([0x80 | opcode, len(text)]) + text)
        peer.data(number, frame(8, (1000).to_bytes(2, "big")))
        seen, ended = b"", False
        while not ended:
            event = await peer.stream(number).next()
            seen, ended = seen + getattr(event, "data", b""), event.stream_ended
        expect(seen[:4], b"\x88\x02\x03\xe8")


async def check(port, names):
    for name in names:
        try:
            await asyncio.wait_for(globals()[name](port), PATIENCE)
        except BaseException as error:
            print(f"failed: {name}: {type(error).__name__}: {error}", flush=True)
            raise SystemExit(1) from error
        print("ok", name, flush=True)


async def answer(peer, number):
    """The server's side of one request."""
    stream = peer.stream(number)
    head = await stream.next()
    fields, ended = dict(head.headers), head.stream_ended
    method, at = fields[b":method"], fields.get(b":path")

    def say(status, more=(), end=False):
        peer.http.send_headers(number, [(b":status", status), *more], end)
        peer.transmit()

    if at == b"/about":
        say(b"103", [(b"link", b"</style.css>; rel=preload")])
        say(b"200", [(b"content-type", b"text/plain")])
        early = "true" if peer.complete is None else "false"
        peer.data(number, f"{method.decode()} HTTP/3.0 early={early}".encode(), True)
    elif at in (b"/echo", b"/tunnel"):
        say(b"200")
        while not ended:
            event = await stream.next()
            if isinstance(event, DatagramReceived):
                peer.http.send_datagram(number, b"back " + event.data)
                peer.transmit()
                continue
            ended = event.stream_ended
            peer.data(number, event.data, ended)
    elif at == b"/trailers":
        seen = b"-"
        while not ended:
            event = await stream.next()
            ended = event.stream_ended
            if isinstance(event, HeadersReceived):
                seen = dict(event.headers)[b"x-end"]
        say(b"200")
        peer.data(number, b"seen " + seen)
        peer.http.send_headers(number, [(b"x-end", b"yes")], True)
        peer.transmit()
    else:
        say(b"404", end=True)


def certificate(configuration):
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "localhost")])
    now = datetime.datetime.now(datetime.timezone.utc)
    made = x509.CertificateBuilder().subject_name(name).issuer_name(name).public_key(key.public_key())
    made = made.serial_number(x509.random_serial_number()).not_valid_before(now - datetime.timedelta(hours=1))
    made = made.not_valid_after(now + datetime.timedelta(hours=1))
    made = made.add_extension(x509.SubjectAlternativeName([x509.DNSName("localhost")]), False)
    configuration.certificate, configuration.private_key = made.sign(key, hashes.SHA256()), key


async def listen(retry):
    configuration = QuicConfiguration(is_client=False, alpn_protocols=["h3", "raw"], max_datagram_frame_size=65536)
    certificate(configuration)
    tickets = {}
    server = await serve(
        "127.0.0.1",
        0,
        configuration=configuration,
        create_protocol=Peer,
        retry=retry,
        session_ticket_handler=lambda ticket: tickets.update({ticket.ticket: ticket}),
        session_ticket_fetcher=lambda label: tickets.pop(label, None),
    )
    print(server._transport.get_extra_info("sockname")[1], flush=True)
    await asyncio.get_running_loop().run_in_executor(None, sys.stdin.read)
    server.close()


if __name__ == "__main__":
    if sys.argv[1:2] == ["client"] and len(sys.argv) > 3:
        asyncio.run(check(int(sys.argv[2]), sys.argv[3:]))
    elif sys.argv[1:2] == ["server"]:
        asyncio.run(listen("retry" in sys.argv[2:]))
    else:
        raise SystemExit(__doc__)
