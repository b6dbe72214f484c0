#!/usr/bin/env python3
"""Checks the ad-hoc signature of a program for macOS, without which an Apple processor does not start it.

    release/check_signature.py PROGRAM

The signature holds a hash of every page of the file. Whatever changes the file after it was linked, such as `strip`, makes it invalid.
"""

import hashlib
import pathlib
import struct
import sys

CODE_SIGNATURE = 0x1D
SUPER_BLOB = 0xFADE0CC0
CODE_DIRECTORY = 0xFADE0C02
SHA256 = 2


def check(data: bytes) -> str:
    """Returns what was found; ends the program if the signature does not hold."""
    magic, processor, _, _, commands, _, _, _ = struct.unpack_from("<8I", data)
    if magic != 0xFEEDFACF or processor != 0x0100000C:
        sys.exit("this is not a Mach-O program of 64 bits for ARM")
    at = 32
    for _ in range(commands):
        command, size = struct.unpack_from("<2I", data, at)
        if command == CODE_SIGNATURE:
            start, length = struct.unpack_from("<2I", data, at + 8)
            return check_blob(data, start, length)
        at += size
    sys.exit("the program has no signature")


def check_blob(data: bytes, start: int, length: int) -> str:
    magic, _, count = struct.unpack_from(">3I", data, start)
    if magic != SUPER_BLOB or start + length > len(data):
        sys.exit("the signature is damaged")
    for index in range(count):
        _, offset = struct.unpack_from(">2I", data, start + 12 + 8 * index)
        directory = start + offset
        magic, _, _, _, hashes, _, _, slots, limit = struct.unpack_from(">9I", data, directory)
        if magic != CODE_DIRECTORY:
            continue
        size, kind, _, page_bits = struct.unpack_from("4B", data, directory + 36)
        if kind != SHA256 or limit != start:
            sys.exit(f"the signature covers {limit} bytes, and the program has {start} before it")
        page = 1 << page_bits
        for slot in range(slots):
            expected = data[directory + hashes + slot * size :][:size]
            if hashlib.sha256(data[slot * page : min((slot + 1) * page, limit)]).digest()[:size] != expected:
                sys.exit(f"page {slot} was changed after the program was signed")
        return f"signed ad hoc, {slots} pages"
    sys.exit("the signature has no hashes")


print(check(pathlib.Path(sys.argv[1]).read_bytes()))
