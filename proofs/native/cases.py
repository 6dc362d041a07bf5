"""Inputs for `compare`, each made of a seed: what services send, and what nobody does.

They are events, pages, aggregates, and frames of HTTP/2.
"""

from __future__ import annotations

import base64
import json
import random
from collections.abc import Iterator
from typing import Any, Final

from efo.protocol.eventstream import encode
from proofs.native.compare import AGGREGATE, EVENT, EVENT_HEADERS, FRAMES, HTTP2, PAGE

NUMBERS: Final = (
    "1700000000.123", "1.700000000123E9", "1767225600", "0", "0.0", "1e3", "1E-3", "1.5e+9", "9007199254740993",
    "18446744073709551615", "18446744073709551616", "123456789012345678901234567890", "0.1e1", "5e-324", "1e308",
    "179769313486231580793728971405e279", "2.2250738585072014e-308", "1e400", "-1", "-0", "-0.0", "01", "1.", ".5",
    "1e", "+1", "NaN", "Infinity", "null", '"1.5"', "true", "1_0", "0x1", "1700000000.12345678901234567890123456789",
)  # fmt: skip
KEYS: Final = (
    "k", "", "ключ", "a\u0000b", 'quote"', "back\\slash", "sl/ash", "😀", "\u007f\u0080", "x" * 256, "x" * 257,
    "é" * 256, "line\nfeed", "\ufeff", "\uffff",
)  # fmt: skip
RAW_STRINGS: Final = (
    r'"\ud83d\ude00"', r'"\ud800"', r'"\udc00\ud800"', r'"\ud800\u0041"', r'"\u00E9\/\b\f\n\r\t"', r'"\x41"', r'"\u12"',
    '"\t"', '"\x01"', "null", "17", '""', '"49\\u0035"', '"٣"', "[]", "{}", '"\\"', '"a',
)  # fmt: skip
DATA: Final = (
    '"AAE="',
    '"AAE"',
    '"AAF="',
    '"AA=="',
    '"AAE=="',
    '"A A="',
    '"_-8="',
    '"AAE\\u003d"',
    '"\\/w=="',
    '""',
    "null",
    "1",
)
MEMBERS: Final = (
    '"New":1', '"New":"text"', '"New":null', '"New":{"a":[1,{}]}', '"New":1e999', '"New":"\\ud800"', '"New":-0',
    '"Tags":[]', '"Tags":[["a","b"]]', '"SubSequenceNumber":7', '"ExplicitHashKey":"1"', '"Dat\\u0061":"AAE="', '"":0',
    '"é":0',     '"New":123456789012345678901234567890', '"New":tru',
    '"Data":"AAE="', '"PartitionKey":null',
    '"EncryptionType":"KMS"',
)  # fmt: skip
WORDS: Final = (
    b'"', b"\\", b",", b":", b"{", b"}", b"[", b"]", b"null", b'"Records":[]', b'"Records":', b"\\u0000", b"\xff",
    b"\xed\xa0\x80", b" ", b"\n", b"\x00", b"=", b"1e400", b"\x1a\x04\x08\x00\x1a\x00", b"\x0a\x01k", b"\x10\x00",
    b"\x80\x00", b"\x22\x03\x0a\x01t",
)  # fmt: skip


def cases(seed: int) -> Iterator[bytes]:
    """Yield inputs without end: of three, one as it was made, and two damaged."""
    chance = random.Random(seed)
    while True:
        kind = chance.choice((EVENT, EVENT, FRAMES, PAGE, AGGREGATE, AGGREGATE, HTTP2))
        made = _MAKERS[kind](chance)
        choice = chance.choice((0, 0, 1, 7, 200)) if kind != AGGREGATE else chance.randrange(256)
        head = bytes([kind, choice])
        yield head + made
        yield head + damaged(made, chance)
        yield head + damaged(damaged(made, chance), chance)


def damaged(data: bytes, chance: random.Random) -> bytes:
    """Return the bytes with a change: a bit, a word that is put in, a part that is away, twice there or the end."""
    start = chance.randrange(len(data) + 1)
    end = min(len(data), start + chance.randrange(1, 9))
    match chance.randrange(5):
        case 0 if data:
            at = chance.randrange(len(data))
            return data[:at] + bytes([data[at] ^ 1 << chance.randrange(8)]) + data[at + 1 :]
        case 1:
            return data[:start] + chance.choice(WORDS) + data[start:]
        case 2:
            return data[:start] + data[end:]
        case 3:
            return data[:end] + data[start:]
        case _:
            return data[:start] if chance.random() < 0.2 else data[:start] + chance.randbytes(2) + data[end:]


def event(chance: random.Random) -> bytes:
    """Make the JSON of an event."""
    members = [f'"Records":{records(chance)}', f'"MillisBehindLatest":{chance.choice(("0", "17", "1.5", "null"))}']
    members.append(
        '"ContinuationSequenceNumber":' + chance.choice(('"495"', '"495"', '"495"', "null", '"x"', '"49\\u0035"'))
    )
    child = {
        "ShardId": "shardId-1",
        "ParentShards": ['a]}\\"', "b"],
        "HashKeyRange": {"StartingHashKey": "0", "EndingHashKey": "1"},
    }
    if chance.random() < 0.3:
        members.append(f'"ChildShards":{json.dumps(chance.choice(([], [child], None)))}')
    return _object(members, chance)


def page(chance: random.Random) -> bytes:
    """Make the JSON of a page of GetRecords."""
    members = [
        f'"Records":{records(chance)}',
        f'"NextShardIterator":{chance.choice(("null", json.dumps("AAA=")))}',
    ]
    if chance.random() < 0.7:
        members.append('"MillisBehindLatest":5')
    return _object(members, chance)


def frames(chance: random.Random) -> bytes:
    """Make the frames of some events, one of which may have other headers."""
    others: dict[str, str] = chance.choice(
        ({}, {}, {"new": "header"}, {":event-type": "Other"}, {":message-type": "error"})
    )
    return b"".join(encode(EVENT_HEADERS | headers, event(chance)) for headers in ({}, others, {}))


def http2(chance: random.Random) -> bytes:
    """Make frames of HTTP/2, nearly all of them DATA of two streams."""
    return b"".join(_http2_frame(chance) for _ in range(chance.choice((1, 2, 5, 20))))


def _http2_frame(chance: random.Random) -> bytes:
    kind, flags, stream = 0, chance.choice((0, 0, 0, 0x40)), chance.choice((1, 1, 3))
    if chance.random() < 0.05:
        kind, flags, stream = chance.randrange(10), chance.randrange(16), chance.randrange(6)
    length = chance.choice((1, 2, 50, 400) if chance.random() < 0.95 else (0, 16_384, 16_385))
    return length.to_bytes(3) + bytes([kind, flags]) + stream.to_bytes(4) + chance.randbytes(length)


def records(chance: random.Random) -> str:
    """Make an array of records, in half of the arrays all laid out alike. Most of their members are usual ones."""
    space = chance.choice(("", "", " ", "\n\t"))
    layout = chance.choice((None, chance.randrange(2**32)))
    made = [
        _record(chance, chance if layout is None else random.Random(layout))
        for _ in range(chance.choice((0, 1, 1, 2, 5)))
    ]
    return f"[{space}" + f",{space}".join(made) + f"{space}]"


def _record(chance: random.Random, layout: random.Random) -> str:
    odd = chance.random() < 0.4  # whether a member may be odd

    def either(usual: str, *others: str) -> str:
        return chance.choice(others) if odd and chance.random() < 0.3 else usual

    data = base64.b64encode(chance.randbytes(chance.choice((0, 1, 2, 3, 40, 200)))).decode()
    key = json.dumps(chance.choice(KEYS), ensure_ascii=chance.random() < 0.5)
    at = repr(chance.uniform(0, 2e9)) if chance.random() < 0.5 else f"{chance.randrange(2_000_000_000_000) / 1000}"
    at = chance.choice((at, at, "1.5", "1.55", "1.5E3"))
    members = [
        f'"SequenceNumber":{either(json.dumps(str(chance.randrange(10**56))), *RAW_STRINGS, json.dumps("1" * 130))}',
        f'"ApproximateArrivalTimestamp":{either(at, *NUMBERS)}',
        f'"Data":{either(json.dumps(data), *DATA)}',
        f'"PartitionKey":{either(key, *RAW_STRINGS)}',
        f'"EncryptionType":{either(chance.choice(("null", json.dumps("NONE"))), *RAW_STRINGS)}',
    ]
    if odd and chance.random() < 0.3:
        members.append(chance.choice(MEMBERS))
    if odd and chance.random() < 0.3:
        members.pop(chance.randrange(len(members)))
    return _object(members, layout).decode()


def _object(members: list[str], chance: random.Random) -> bytes:
    if chance.random() < 0.5:
        chance.shuffle(members)
    if chance.random() < 0.05:
        members.append(chance.choice((*MEMBERS, *members)))
    comma = chance.choice((",", ",", ", ", " ,\r\n"))
    return ("{" + comma.join(members) + "}").encode(errors="surrogatepass")


def aggregate(chance: random.Random) -> bytes:
    """Make an AggregatedRecord: of tables and user records, in any order, some with odd fields."""
    keys = [
        chance.choice(KEYS) if chance.random() < 0.2 else f"key-{chance.randrange(99)}"
        for _ in range(chance.randrange(5))
    ]
    hashes: list[str] = []
    if chance.random() < 0.4:
        texts = ("0", str(2**128 - 1), str(2**128), "0" * 39, "0" * 40, "undefined", "", "٣", "-1", "+1", " 1")
        hashes = [
            chance.choice((str(chance.randrange(2**128)), *texts[: chance.randrange(12)]))
            for _ in range(chance.randrange(4))
        ]
    parts = [_field(1, key.encode()) for key in keys] + [_field(2, text.encode()) for text in hashes]
    parts += [_user(chance, len(keys), len(hashes)) for _ in range(chance.randrange(6))]
    if chance.random() < 0.2:
        chance.shuffle(parts)
    if chance.random() < 0.1:
        parts.insert(chance.randrange(len(parts) + 1), chance.choice(WORDS))
    return b"".join(parts)


def _user(chance: random.Random, keys: int, hashes: int) -> bytes:
    spread = 1 if chance.random() < 0.95 else 3
    fields = [b"\x08" + _varint(chance.randrange(max(1, keys * spread)), chance)]
    if hashes and chance.random() < 0.7:
        fields.append(b"\x10" + _varint(chance.randrange(hashes * spread), chance))
    fields.append(_field(3, chance.randbytes(chance.choice((0, 1, 20, 200)))))
    if chance.random() < 0.1:
        fields.append(
            chance.choice((_field(4, _field(1, b"t")), b"\x20\x01", b"\x08\x00", _field(3, b"twice"), b"\x33\x34"))
        )
    if chance.random() < 0.1:
        chance.shuffle(fields)
    if chance.random() < 0.03:
        fields.pop()
    return _field(3, b"".join(fields))


def _field(number: int, value: bytes) -> bytes:
    return bytes([number << 3 | 2]) + _varint(len(value)) + value


def _varint(number: int, chance: random.Random | None = None) -> bytes:
    """Encode a number, sometimes in more bytes than it needs."""
    encoded = bytearray()
    while number > 0x7F:
        encoded.append(number & 0x7F | 0x80)
        number >>= 7
    if chance is not None and chance.random() < 0.03:
        return bytes([*encoded, number | 0x80, *b"\x80" * chance.randrange(9), 0])
    return bytes([*encoded, number])


_MAKERS: Final[dict[int, Any]] = {EVENT: event, FRAMES: frames, PAGE: page, AGGREGATE: aggregate, HTTP2: http2}
