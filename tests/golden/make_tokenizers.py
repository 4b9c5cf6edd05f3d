#!/usr/bin/env python3
"""Write tokenizers/NAME/{tokenizer.json,encodings.json} with the tokenizers library of Hugging Face.

    python3 -m venv build/golden
    build/golden/bin/pip install tokenizers==0.23.3 && build/golden/bin/pip install --no-deps rwkv==0.8.32
    build/golden/bin/python tests/golden/make_tokenizers.py [NAME...]

Each is a small byte pair encoding with the structure of a published one, trained on pages of docs/ and on
the text below. rwkv/ is a part of BlinkDL's vocabulary (Apache-2.0), with values by his package.
encodings.json: texts that are hard to cut, each with its values by the library.
--check compares the results with the stored files and writes nothing. --compare PROGRAM gives 10,000
random texts for each to encode_texts (tests/models/text) and to the library, which must agree.
"""

import argparse
import functools
import json
import os
import random
import subprocess
import sys
import unicodedata

import rwkv.rwkv_tokenizer
from tokenizers import (
    AddedToken,
    Regex,
    Tokenizer,
    decoders,
    models,
    normalizers,
    pre_tokenizers,
    processors,
    trainers,
)

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(os.path.dirname(HERE))
TEXTS = ("docs/architecture.md", "docs/bundle.md", "docs/api.md", "docs/deploy.md")

TRAINING = """
Das Wasser rann mit Zasch und Zisch; die Straße war naß, und größer wurde die Lücke über dem Fluß.
L'été, où naît le français, ça et là; cœur, garçon, mañana, el niño; señor, qué será.
Река течёт, и год за годом вода уносит берега; быстрая, холодная, тёмная вода.
Το ποτάμι κυλάει και το νερό πηγαίνει στη θάλασσα.
川は流れ、水は海に入る。川の水は冷たい。河水流入大海，水很冷。
강물은 바다로 흐른다. 물이 차다.
النهر يجري إلى البحر والماء بارد. הנהר זורם אל הים.
नदी समुद्र की ओर बहती है। पानी ठंडा है।
🌊🌊🏞️ 👩‍👩‍👧 👍🏽 🇫🇷
if (state == nullptr) return 0;  for (int i = 0; i < 10; ++i) { x[i] += 1.5e-3; }
1234567890 12 345 6789 3.14159 1,000,000 2026-11-21
it's we're I'm you've he'll she'd don't IT'S WE'RE
"""

# The words of a well-known family of models: contractions in upper or lower case, numbers of at most three digits,
# separate line breaks.
SPLIT = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*"
    r"|\s*[\r\n]+|\s+(?!\S)|\s+"
)
# The words of Qwen3.5: marks belong to words, and each digit is separate.
MARKED_WORDS = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*"
    r"|\s*[\r\n]+|\s+(?!\S)|\s+"
)
# Two patterns in succession: runs of Chinese characters are cut off, then words are cut by letter case.
CJK = r"[一-鿿]+"
CASES = (
    r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+"
    r"|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s+"
)

HARD = [
    "",
    " ",
    "  ",
    "a",
    "\n",
    "\t\t x",
    "Hello, world!",
    "The state of a session costs a known number of bytes.",
    "trailing spaces   ",
    "   leading spaces",
    "a  b   c    d",
    "line\nline\n\nline\r\nline\r\rline\n ",
    "tabs\tand\t\tmore \t mixed \t",
    "    indented = [1, 2, 3]\n        more\n",
    "it's we're I'm you've he'll she'd don't",
    "IT'S WE'RE I'M YOU'VE HE'LL SHE'D",
    "'s 't 're 've 'm 'll 'd 'x ''s",
    "x'\u017f y'\u212a \u017f \u212a",
    "rock 'n' roll, o'clock, '90s",
    "\u2019s typographic apostrophes: it\u2019s, we\u2019re",
    "0",
    "12 123 1234 12345 123456 1234567",
    "3.14159e-10 1,000,000 0x1F 50% $9.99 #1 1st 2nd",
    "\u0661\u0662\u0663 \u0967\u0968\u0969 \u4e00\u4e8c\u4e09 \u2167 \u00bd \u00b2\u00b3 \u2460",
    "snake_case camelCase SCREAMING_CASE kebab-case HTTPServer iOS",
    "!?.,;: --- ... *** ((())) [[]] {{}} <<>> @@ ## && || ~~ `` ^^ \\\\ //",
    "a.b,c;d:e!f?g",
    "http://user@example.org:8080/path?x=1&y=%20#top",
    "Stra\u00dfe na\u00efve caf\u00e9 cafe\u0301 co\u0153ur \u00c5ngstr\u00f6m A\u030angstrom",
    "\u01c5 \u01c8 titlecase; \u02b0 \u02b1 modifiers; \u00aa \u00ba",
    "Zalgo: Z\u0351\u036b\u0343\u036a\u0302\u036b\u033d\u034f\u0334\u0319\u0324\u031e\u0349a\u036a\u034c\u033d",
    "\u0301 combining first",
    "Река течёт. ВОДА! ёж Ё",
    "Το νερό, το ποτάμι; ΘΆΛΑΣΣΑ ς",
    "川は流れ、水は海に入る。カタカナ ﾊﾝｶｸ ー",
    "河水流入大海，水很冷。𠀀𠀁 extension",
    "강물은 바다로 흐른다. \u1100\u1161\u11a8 ㄱ",
    "النهر يجري إلى البحر. مَاءٌ",
    "הנהר זורם אל הים. שָׁלוֹם",
    "नदी समुद्र की ओर बहती है। क्षि ज्ञ",
    "แม่น้ำไหลลงสู่ทะเล",
    "ნ მდინარე Ა ა Ჰ",
    "Ձ հայերեն և",
    "ግዕዝ ቋንቋ",
    "தமிழ் নদী ગુજરાતી ਪੰਜਾਬੀ తెలుగు ಕನ್ನಡ മലയാളം සිංහල",
    "ភាសាខ្មែរ ລາວ မြန်မာ བོད་ཡིག",
    "ᠮᠣᠩᠭᠣᠯ a\u180eb \u180e c",
    "ᏣᎳᎩ ꮳꮃꭹ ᓄᓇᕗᑦ ᚠᚢᚦ ⲕⲟⲡ 𐌲𐌿𐍄 𝔘𝔫𝔦 𝟘𝟙𝟚 Ⓐⓑ ℵ",
    "mixed川and水with latin",
    "👍 👍🏽 👩‍👩‍👧‍👦 🏳️‍🌈 🇫🇷🇩🇪 1️⃣ ☺️ ☺",
    "🌊🌊🌊 🏞️flow🌊",
    "a\u00a0b \u00a0 c\u2003d\u2009e\u202ff\u205fg\u3000h\u1680i",
    "\u2028line\u2029paragraph\u0085next\u000bvt\u000cff",
    "zero\u200bwidth\u200cjoin\u200der\u2060word\ufeffbom",
    "\ufeffbom first",
    "\u0000nul \u0001\u0002\u0003 \u001b[31mred\u001b[0m \u007f \u0080\u009f",
    "soft\u00adhyphen \u00a1\u00bf \u00b7 \u00a6",
    "\ufffd \ufffe \uffff \U0001fffe \U0010ffff",
    "\ue000 private \U000f0000",
    "\u202eright to left override\u202c",
    "fi ligature: \ufb01 \ufb06; full width: \uff21\uff22\uff43\uff11\uff12\u3000\uff01",
    "\u2200x\u2208\u211d: \u2211\u222b\u221a\u221e \u2264\u2265\u2260 \u00b1\u00d7\u00f7 \u2192\u21d2",
    "\u20ac5 \u00a35 \u00a55 \u20b95 5\u00b0C \u2030 \u2116 \u2122 \u00a9 \u00ae",
    "\u2014em\u2014dash \u2013 \u2026 \u201cquotes\u201d \u2018single\u2019 \u00abguillemets\u00bb \u201elow\u201c",
    "\u2500\u2502\u250c \u2588\u2591 \u25a0\u25cf \u2660\u2665 \u266a \u2713 \u2801\u2802",
    "<|end|>",
    "before<|end|>after",
    "before <|end|> after",
    "<|end|><|end|>\n<|end|>",
    "<|end|",
    "<|end|>|>",
    "<|end|><|endless|><|end|>less|>",
    "<<|end|>>",
    "stream<|pause|>stream <|pause|>",
    "<|pause|><|end|> <|pause|>",
    "Runnel runs; runnels; a Runnel\u00e9",
    "flußfluß Fluß flußaufwärts",
    "\u2603 snowman\u2603snow",
    "a" * 300,
    "ab" * 200,
    " " * 200,
    " " * 99 + "x",
    "\n" * 77,
    "\r\n" * 40,
    "-" * 150,
    "1" * 100,
    "川" * 120,
    "🌊" * 60,
    "the " * 80,
    "\u0301" * 50,
    "aA" * 60,
    "session sessions sessional obsession",
    "The server keeps one such state per session on the device, advances many sessions in one batch,\n"
    "and streams tokens or pixels as they are sampled.\n\n  - constant memory\n  - exact capacity\n",
    'for (int i = 0; i < n; ++i) {\n\tsum += x[i] * y[i];  // "dot"\n}\r\n',
    '{"model": "mnist", "values": {"values": [0, 0, 0]}, "max_values": "4"}',
    "| a | b |\n| --- | --- |\n| 1 | 2 |\n",
    "SELECT * FROM t WHERE a='b' AND c<>'d''e';",
    "E=mc^2; f(x)=x^2+2x+1; \\frac{a}{b}",
    "lorem ipsum DOLOR Sit amet, consectetur; ADIPISCING",
]

# Characters that NFC changes, keeps or reorders; SentencePiece's mark; text that looks like a token.
NORMALIZED = [
    "e\u0301 E\u0301 n\u0303 u\u0308\u0304 o\u0302\u0301",
    "\u212b \u2126 \u212a \u1f71 \u0340 \u0344 \u0374 \u037e \u0387",
    "a\u0301\u0316 a\u0316\u0301 a\u0315\u0300\u05ae\u0300 \u0f71\u0f72\u0f74",
    "\u1100\u1161 \u1100\u1161\u11a8 \uac00\u11a8 \uac01\u11a8 \u11a8 \u1112\u1175\u11c2",
    "\u0958 \u0915\u093c \u09dc \u0a33 \u2adc \ufb1d \ufb2a \ufb4e \U0001d15e \U0001d1bb",
    "\uf900 \ufa10 \U0002f800 \ufb01 \uff21 \u00bd \u2167 \u3300",
    "\u0b47\u0b56 \u0b47\u0b3e \u0cbf\u0cd5 \u0dd9\u0dca \u0ddc\u0dca \u1025\u102e \u1b05\u1b35",
    "\u0301\u0316 first a\u0301\u0301\u0301 b\u0327\u0301 c\u0301\u0327 \u1e9b\u0323 \u1e69 s\u0323\u0307",
    "x" + "\u0301\u0316" * 40,
    "\u2581 \u2581\u2581a \u2581the a\u2581b \u2581\u2581 ",
    "<0x41> <0x0A> <0xE2> <unk> <s> </s> x<s>y <s> y",
    "<s><s> </s>\n</s>\u2003</s>",
    "  <pad>  <pad>\t\t<pad>x \u3000<pad>\u2028 ",
    "100 1000 10000 x100 12.5 1,000 123abc456",
    "!?!?a!? $5 +1 <= >= ^_^ `x` |y| ~z \u00bfq? \u3002\u3002a\u3001",
    "\u043c\u043d\u043e \u00b2\u00b3 \u0432\u0431",
    "\u4e2d\u6587 \u00e9t\u00e9 ",
    " a  b   c    d",
    "   ",
]

ADDED = [
    AddedToken("<|end|>", special=True),
    AddedToken("<|pause|>", special=True),
    AddedToken("<|endless|>", special=False),  # found after the special ones
    AddedToken("runnels", special=False),
    AddedToken("Fluß", special=False),
    AddedToken("☃", special=False, normalized=False),
]


MARK = "\u2581"


def training_texts():
    texts = [TRAINING] * 4
    for path in TEXTS:
        with open(os.path.join(ROOT, path), encoding="utf-8") as file:
            texts.append(file.read())
    return texts


def trained(pre_tokenizer, ignore_merges=False):
    tokenizer = Tokenizer(models.BPE(ignore_merges=ignore_merges))
    tokenizer.pre_tokenizer = pre_tokenizer
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=900,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(training_texts(), trainer)
    return tokenizer


def byte_level(use_regex, add_prefix_space=False):
    return pre_tokenizers.ByteLevel(add_prefix_space=add_prefix_space, use_regex=use_regex)


def split(pattern):
    return pre_tokenizers.Split(Regex(pattern), "isolated")


def make_all():
    gpt2 = trained(byte_level(True))
    gpt2.add_tokens(ADDED[:1])
    prefixed = trained(byte_level(True, add_prefix_space=True))
    prefixed.add_tokens(ADDED[:2])
    words = trained(pre_tokenizers.Sequence([split(SPLIT), byte_level(False)]), ignore_merges=True)
    words.add_tokens(ADDED)
    cases = trained(
        pre_tokenizers.Sequence([split(CJK), split(CASES), byte_level(False)]),
    )
    qwen3_5 = trained(pre_tokenizers.Sequence([split(MARKED_WORDS), byte_level(False)]))
    qwen3_5.normalizer = normalizers.NFC()
    qwen3_5.add_tokens([AddedToken("<|endoftext|>", special=True, normalized=False)])
    whole = trained(byte_level(True))
    whole.pre_tokenizer = byte_level(False)  # no words: merges cross spaces
    return {
        "gpt2": gpt2,
        "prefixed": prefixed,
        "words": words,
        "cases": cases,
        "qwen3_5": qwen3_5,
        "whole": whole,
        "neox": neox(),
        "falcon": falcon(),
        **make_with_bytes(),
    }


def neox():
    """Like GPT-NeoX's: NFC, and tokens for runs of spaces."""
    tokenizer = trained(byte_level(True))
    tokenizer.normalizer = normalizers.NFC()
    tokenizer.add_tokens([AddedToken("<|endoftext|>", special=True, normalized=False)])
    tokenizer.add_tokens([AddedToken(" " * count, normalized=True) for count in range(24, 1, -1)])
    tokenizer.add_tokens([AddedToken("e\u0301le\u0300ve", normalized=True)])
    tokenizer.post_processor = processors.ByteLevel(trim_offsets=True)
    return tokenizer


def falcon():
    """Like Falcon's: words are cut again after their bytes have become letters."""
    steps = [
        pre_tokenizers.Punctuation("contiguous"),
        byte_level(True),
        pre_tokenizers.Digits(individual_digits=False),
        split("[0-9][0-9][0-9]"),
    ]
    tokenizer = trained(pre_tokenizers.Sequence(steps))
    tokenizer.add_tokens([AddedToken(">>TITLE<<", special=True, normalized=False), *ADDED[:1]])
    return tokenizer


def with_bytes(normalizer, pre_tokenizer, decoder, added, ignore_merges=False):
    """Like Llama's and Mistral's: SentencePiece's marks, and bytes for characters without a token."""
    base = Tokenizer(models.BPE())
    base.normalizer = normalizers.Replace(" ", MARK)
    base.pre_tokenizer = pre_tokenizers.Split(MARK, "merged_with_next")
    base.train_from_iterator(
        training_texts(), trainers.BpeTrainer(vocab_size=700, limit_alphabet=90, show_progress=False)
    )
    model = json.loads(base.to_str())["model"]
    names = ["<unk>", "<s>", "</s>", *(f"<0x{byte:02X}>" for byte in range(256))]
    names += [MARK, *sorted(model["vocab"], key=model["vocab"].get)]
    values = {name: value for value, name in enumerate(dict.fromkeys(names))}
    merges = [tuple(pair) for pair in model["merges"]]
    options = {"unk_token": "<unk>", "fuse_unk": True, "byte_fallback": True, "ignore_merges": ignore_merges}
    tokenizer = Tokenizer(models.BPE(vocab=values, merges=merges, **options))
    tokenizer.normalizer = normalizer
    tokenizer.pre_tokenizer = pre_tokenizer
    tokenizer.decoder = decoder
    tokenizer.add_special_tokens([AddedToken(name, normalized=False) for name in ("<unk>", "<s>", "</s>")])
    tokenizer.add_tokens(added)
    tokenizer.post_processor = processors.TemplateProcessing(
        single="<s> $A </s>", pair="<s> $A <s> $B", special_tokens=[("<s>", 1), ("</s>", 2)]
    )
    return tokenizer


def joined(*ends):
    return decoders.Sequence([decoders.Replace(MARK, " "), decoders.ByteFallback(), decoders.Fuse(), *ends])


def make_with_bytes():
    strip = decoders.Strip(" ", 1, 0)
    marked = normalizers.Sequence([normalizers.Prepend(MARK), normalizers.Replace(" ", MARK)])
    taking_space = [
        AddedToken("<pad>", special=True, lstrip=True, rstrip=True),
        AddedToken("state", normalized=True),
        AddedToken("\u00e9t\u00e9", normalized=False, rstrip=True),
    ]
    metaspace = pre_tokenizers.Metaspace
    return {
        "llama": with_bytes(marked, None, joined(strip), taking_space),
        "mistral": with_bytes(None, metaspace(MARK, "first", False), joined(strip), taking_space),
        "marks": with_bytes(
            normalizers.NFC(), metaspace(MARK, "always", True), decoders.Metaspace(MARK, "always"), [], True
        ),
        "unmarked": with_bytes(normalizers.Replace(" ", MARK), None, joined(), taking_space[:1]),
    }


def old_form(name, text):
    """The file in the form of older versions: merges as "a b", Metaspace with a flag."""
    tree = json.loads(text)
    if name in ("gpt2", "llama", "marks"):
        tree["model"]["merges"] = [" ".join(pair) for pair in tree["model"]["merges"]]
    if name == "marks":
        for member in ("pre_tokenizer", "decoder"):
            tree[member] = {"type": "Metaspace", "replacement": MARK, "add_prefix_space": True}
    return json.dumps(tree, ensure_ascii=False)


class Library:
    """A tokenizer.json, read by the tokenizers library."""

    def __init__(self, directory):
        self.tokenizer = Tokenizer.from_file(os.path.join(directory, "tokenizer.json"))

    def encode(self, texts):
        return [one.ids for one in self.tokenizer.encode_batch(texts, add_special_tokens=False)]

    def decode(self, values):
        """The text of the values, or None if the library would lose some of it (letters of added tokens, spaces)."""
        added = self.tokenizer.get_added_tokens_decoder()
        is_lossy = isinstance(self.tokenizer.decoder, decoders.Metaspace) or any(value in added for value in values)
        return None if is_lossy else self.tokenizer.decode(values, skip_special_tokens=False)


class Trie:
    """A vocabulary of RWKV, read by BlinkDL's package."""

    def __init__(self, directory):
        self.tokenizer = rwkv.rwkv_tokenizer.TRIE_TOKENIZER(os.path.join(directory, VOCABULARY))

    def encode(self, texts):
        return [self.tokenizer.encode(text) for text in texts]

    def decode(self, values):
        return self.tokenizer.decodeBytes(values).decode("utf-8")


VOCABULARY = "rwkv_vocab_v20230424.txt"


def original(directory):
    """The reference implementation for the tokenizer in a directory."""
    return (Trie if os.path.exists(os.path.join(directory, VOCABULARY)) else Library)(directory)


def write_part_of_rwkv(path):
    """Writes the single bytes, some of the other tokens, and more of the tokens with escapes."""
    whole = os.path.join(os.path.dirname(rwkv.rwkv_tokenizer.__file__), VOCABULARY)
    with open(whole, encoding="utf-8") as file:
        lines = file.read().split("\n")[:-1]
    kept = lines[:256] + [line for line in lines[256:] if int(line[: line.index(" ")]) % 61 == 0]
    kept += [line for line in lines[256:] if "\\" in line and int(line[: line.index(" ")]) % 7 == 0]
    with open(path, "w", encoding="utf-8") as file:
        file.write("".join(line + "\n" for line in sorted(set(kept), key=lambda line: int(line.split(" ")[0]))))


# Characters so old that every library has the same tables for them.
CHARACTERS = [
    chr(code)
    for code in range(0x20, 0x30000)
    if unicodedata.ucd_3_2_0.category(chr(code)) not in ("Cn", "Cs")
    and unicodedata.ucd_3_2_0.category(chr(code)) == unicodedata.category(chr(code))
]
MARKS = [one for one in CHARACTERS if unicodedata.combining(one)]
PIECES = [
    *(" ", "  ", "\n", "\t", "\r\n", "\u00a0", "\u3000", "\u0085", "a", "the", "The", "state", "of", "session", "'s"),
    *("'", "7", "100", "1234", ".", ",", "!?", "<", ">", "|", "<|end|>", "<|end", "<s>", "</s>", "<pad>", "<unk>"),
    *(
        "<0x41>",
        MARK,
        MARK * 2,
        MARK + "a",
        "<|endoftext|>",
        ">>TITLE<<",
        "runnels",
        "Fluß",
        "☃",
        "été",
        "川",
        "🌊",
        "é",
    ),
    *("e\u0301", "\u0301", "\u0316", "\u1100", "\u1161", "\u11a8", "가", "м", "²", "½", "\u200d", "_", "{", "}", "\\"),
]


def random_text(source):
    """Hard pieces, runs of one piece, characters of any kind, or all of these."""
    kind = source.randrange(5)
    pieces = source.choices(PIECES, k=source.randrange(1, 6)) if kind == 0 else PIECES
    text = ""
    for _ in range(source.randrange(1, 40)):
        text += source.choice(pieces) * (source.randrange(1, 30) if source.randrange(9) == 0 else 1)
        if kind == 1:
            text += source.choice(CHARACTERS)
        if kind == 2:
            text += "".join(source.choices(MARKS, k=source.randrange(5)))
        if kind == 3:
            text += source.choice(HARD)[: source.randrange(12)]
    return text


@functools.cache
def random_texts(count):
    source = random.Random(15)
    return [random_text(source) for _ in range(count)]


def compare(program, directory, count):
    """Exits with a message if `program` has other values for one of `count` texts, or decodes another text."""
    texts = random_texts(count)
    lines = "".join(json.dumps(text) + "\n" for text in texts)
    done = subprocess.run([program, directory], input=lines, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        sys.exit(f"{directory}: {done.stderr}")
    results = [json.loads(line) for line in done.stdout.split("\n")[:-1]]
    library = original(directory)
    decoded = 0
    for text, values, result in zip(texts, library.encode(texts), results, strict=True):
        if result["values"] != values:
            sys.exit(f"{directory}: {text!r}: expected {values}, found {result['values']}")
        expected = library.decode(values)
        if expected is not None and "\ufffd" not in expected and expected != result["text"]:
            sys.exit(f"{directory}: {text!r}: expected {expected!r}, found {result['text']!r}")
        decoded += expected is not None
    print(f"{directory}: {len(texts)} texts encode alike, {decoded} decode alike")


def names_of_all():
    return sorted(os.listdir(os.path.join(HERE, "tokenizers")))


def hard_texts(name):
    return HARD if name in ("gpt2", "prefixed", "words", "cases", "whole") else HARD + NORMALIZED


def stored_form(name, directory):
    texts = hard_texts(name)
    encodings = [
        {"text": text, "values": values} for text, values in zip(texts, original(directory).encode(texts), strict=True)
    ]
    return "[\n" + ",\n".join(json.dumps(one, ensure_ascii=True) for one in encodings) + "\n]\n"


def write(name, make, directory):
    os.makedirs(directory, exist_ok=True)
    if name == "rwkv":
        write_part_of_rwkv(os.path.join(directory, VOCABULARY))
    else:
        with open(os.path.join(directory, "tokenizer.json"), "w", encoding="utf-8") as file:
            file.write(old_form(name, make[name].to_str()) + "\n")
    with open(os.path.join(directory, "encodings.json"), "w", encoding="utf-8") as file:
        file.write(stored_form(name, directory))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true", help="compare, write nothing")
    parser.add_argument("--compare", metavar="PROGRAM", help="compare this program, write nothing")
    parser.add_argument("--texts", type=int, default=10000, help="random texts to compare (10000)")
    parser.add_argument("names", nargs="*", help="names of tokenizers, or directories to compare (all)")
    args = parser.parse_args()
    if args.check or args.compare:
        for name in args.names or names_of_all():
            directory = os.path.join(HERE, "tokenizers", name)
            if args.compare:
                compare(args.compare, directory, args.texts)
                continue
            with open(os.path.join(directory, "encodings.json"), encoding="utf-8") as file:
                if file.read() != stored_form(name, directory):
                    sys.exit(f"{name}: the library gives other values")
        return
    make = make_all()
    for name in args.names or [*make, "rwkv"]:
        write(name, make, os.path.join(HERE, "tokenizers", name))


if __name__ == "__main__":
    main()
