#!/usr/bin/env python3
"""Write tokenizers/NAME/{tokenizer.json,encodings.json} with the tokenizers library of Hugging Face.

    python3 -m venv /tmp/golden && /tmp/golden/bin/pip install tokenizers==0.23.3
    /tmp/golden/bin/python tests/golden/make_tokenizers.py

Each is a small byte-level BPE, trained on pages of docs/ and on what stands here.
encodings.json: texts that are hard to cut, each with its values as the library gives them.
--check compares what it computes with what is stored and writes nothing.
"""

import argparse
import json
import os
import sys

from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, pre_tokenizers, trainers  # type: ignore[attr-defined]

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

# The words of a well-known family of models: contractions in either case, numbers of at most three
# digits, line breaks by themselves.
SPLIT = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*"
    r"|\s*[\r\n]+|\s+(?!\S)|\s+"
)
# Two patterns after one another: Chinese characters by themselves, then words by letter case.
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

ADDED = [
    AddedToken("<|end|>", special=True),
    AddedToken("<|pause|>", special=True),
    AddedToken("<|endless|>", special=False),  # found after the special ones
    AddedToken("runnels", special=False),
    AddedToken("Fluß", special=False),
    AddedToken("☃", special=False, normalized=False),
]


def trained(pre_tokenizer, ignore_merges=False):
    tokenizer = Tokenizer(models.BPE(ignore_merges=ignore_merges))
    tokenizer.pre_tokenizer = pre_tokenizer
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=900,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    texts = [TRAINING] * 4
    for path in TEXTS:
        with open(os.path.join(ROOT, path), encoding="utf-8") as file:
            texts.append(file.read())
    tokenizer.train_from_iterator(texts, trainer)
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
    whole = trained(byte_level(True))
    whole.pre_tokenizer = byte_level(False)  # no words: merges go across spaces
    return {"gpt2": gpt2, "prefixed": prefixed, "words": words, "cases": cases, "whole": whole}


def old_form(text):
    """The file with its merges as "a b", as older ones have them."""
    tree = json.loads(text)
    tree["model"]["merges"] = [" ".join(pair) for pair in tree["model"]["merges"]]
    return json.dumps(tree, ensure_ascii=False)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true", help="compare, write nothing")
    args = parser.parse_args()
    for name, tokenizer in make_all().items():
        directory = os.path.join(HERE, "tokenizers", name)
        path = os.path.join(directory, "tokenizer.json")
        if args.check:
            tokenizer = Tokenizer.from_file(path)
        encodings = [{"text": text, "values": tokenizer.encode(text, add_special_tokens=False).ids} for text in HARD]
        lines = [json.dumps(one, ensure_ascii=True) for one in encodings]
        stored = "[\n" + ",\n".join(lines) + "\n]\n"
        if args.check:
            with open(os.path.join(directory, "encodings.json"), encoding="utf-8") as file:
                if file.read() != stored:
                    sys.exit(f"{name}: the library gives other values")
            continue
        os.makedirs(directory, exist_ok=True)
        text = tokenizer.to_str()
        with open(path, "w", encoding="utf-8") as file:
            file.write((old_form(text) if name == "gpt2" else text) + "\n")
        with open(os.path.join(directory, "encodings.json"), "w", encoding="utf-8") as file:
            file.write(stored)
        print(f"{name}: {tokenizer.get_vocab_size()} values, {len(HARD)} texts")


if __name__ == "__main__":
    main()
