"""The bytes of each tensor of a GGUF file."""

import os
import struct

STRING, ARRAY = 8, 9
BYTES = {0: 1, 1: 1, 2: 2, 3: 2, 4: 4, 5: 4, 6: 4, 7: 1, 10: 8, 11: 8, 12: 8}  # of a value, by the number of its type
ALIGNMENT = 32


def tensor_sizes(path):
    """The bytes of each tensor by name, including the padding after it."""
    with open(path, "rb") as file:

        def number(form="<Q"):
            return struct.unpack(form, file.read(struct.calcsize(form)))[0]

        def skip(kind):
            if kind == STRING:
                file.seek(number(), os.SEEK_CUR)
            elif kind == ARRAY:
                kind, count = number("<I"), number()
                if kind == STRING:
                    for _ in range(count):
                        skip(STRING)
                else:
                    file.seek(count * BYTES[kind], os.SEEK_CUR)
            else:
                file.seek(BYTES[kind], os.SEEK_CUR)

        file.seek(8)  # the word GGUF and the version
        tensors, keys = number(), number()
        for _ in range(keys):
            skip(STRING)
            skip(number("<I"))
        begins = {}
        for _ in range(tensors):
            name = file.read(number()).decode()
            file.seek(8 * number("<I") + 4, os.SEEK_CUR)  # the shape and the type
            begins[name] = number()
        data_begin = (file.tell() + ALIGNMENT - 1) // ALIGNMENT * ALIGNMENT
    names = sorted(begins, key=lambda name: begins[name])
    ends = [begins[name] for name in names[1:]] + [os.path.getsize(path) - data_begin]
    return {name: end - begins[name] for name, end in zip(names, ends)}
