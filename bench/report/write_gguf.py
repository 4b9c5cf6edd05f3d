#!/usr/bin/env python3
"""Write the GGUF file of a published model in bf16 by llama.cpp's own converter, without a vocabulary.

    write_gguf.py LLAMA_CPP DIRECTORY FILE.gguf

The converter's command line asks for a tokenizer, which random models do not have. LLAMA_CPP holds llama.cpp's sources.
Needs torch and transformers.
"""

import argparse
import importlib
import json
import pathlib
import sys
from typing import Any


def set_vocab(model):
    """Has llama.cpp make dummy tokens, of which only the number matters."""
    model._set_vocab_none()
    model.gguf_writer.add_vocab_size(model.hparams["vocab_size"])


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("sources", type=pathlib.Path)
    parser.add_argument("directory", type=pathlib.Path)
    parser.add_argument("file", type=pathlib.Path)
    arguments = parser.parse_args()
    sys.path[:0] = [str(arguments.sources), str(arguments.sources / "gguf-py")]
    gguf: Any = importlib.import_module("gguf")
    conversion: Any = importlib.import_module("conversion")
    config = json.loads((arguments.directory / "config.json").read_text(encoding="utf-8"))
    converter = conversion.get_model_class(config["architectures"][0])
    converter.set_vocab, converter.no_mtp = set_vocab, True
    converter(arguments.directory, gguf.LlamaFileType.MOSTLY_BF16, arguments.file).write()


if __name__ == "__main__":
    main()
